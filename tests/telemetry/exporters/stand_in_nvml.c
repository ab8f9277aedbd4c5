/* A library with NVML's C interface and two made-up GPUs, so that the real nvidia-ml-py is called where no driver is.
 * NVML_PLAYS=ampere (no GPM, NVLink byte counters), hopper (GPM), lost (the second GPU falls off the bus at its third sample),
 * renamed (a driver that knows the clocks' event reasons by their new name only), hang (the third power reading never returns). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15 };

typedef struct { int index; int asked; uint64_t kib; } Gpu;
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { uint32_t field, scope; int64_t time_us, latency_us; int type, ret; uint64_t value; } FieldValue;
typedef struct { unsigned id; int ret; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; void *first, *second; GpmMetric metrics[]; } GpmRequest;
typedef struct { Gpu *gpu; int number; } GpmSample;

static Gpu gpus[2] = {{0, 0, 0}, {1, 0, 0}};
static int started, samples_held;

static int plays(const char *role) {
    const char *name = getenv("NVML_PLAYS");
    return name != NULL && strcmp(name, role) == 0;
}

static int answer(const Gpu *gpu) { return plays("lost") && gpu->index == 1 && gpu->asked > 2 ? GPU_IS_LOST : OK; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; started = 1; return OK; }
int nvmlShutdown(void) { started = 0; return OK; }
const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "made-up error"; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return started ? OK : UNINITIALIZED; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **handle) {
    if (index > 1) return INVALID_ARGUMENT;
    *handle = &gpus[index];
    return OK;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned length) {
    snprintf(text, length, "GPU-0000000%d-aaaa-bbbb-cccc-dddddddddddd", gpu->index);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", gpu->index ? 0xAB : 0x19);
    return OK;
}

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *rates) { rates->gpu = 90 + gpu->index; rates->memory = 40; return answer(gpu); }

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *milliwatts) {
    gpu->asked++;
    if (plays("hang") && gpu->asked > 2) pause();
    *milliwatts = 500000 + gpu->index;
    return answer(gpu);
}

int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *celsius) { *celsius = 60; return sensor ? INVALID_ARGUMENT : answer(gpu); }
int nvmlDeviceGetClockInfo(Gpu *gpu, int type, unsigned *mhz) { *mhz = type == 1 ? 1980 : 1; return answer(gpu); }

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    memory->total = 80ULL << 30, memory->free = 60ULL << 30, memory->used = 20ULL << 30;
    return answer(gpu);
}

static int reasons(Gpu *gpu, uint64_t *mask) { *mask = 0x48; return answer(gpu); }
int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, uint64_t *mask) { return plays("renamed") ? FUNCTION_NOT_FOUND : reasons(gpu, mask); }
int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, uint64_t *mask) { return plays("renamed") ? reasons(gpu, mask) : FUNCTION_NOT_FOUND; }

int nvmlDeviceGetFieldValues(Gpu *gpu, int count, FieldValue *values) {
    for (int i = 0; i < count; i++) {
        int known = (values[i].field == 138 || values[i].field == 139) && values[i].scope == UINT32_MAX;
        values[i].ret = known ? OK : INVALID_ARGUMENT;
        values[i].value = gpu->kib += 1 << 20; /* 1 GiB more at each look */
    }
    return answer(gpu);
}

int nvmlDeviceGetPcieThroughput(Gpu *gpu, int way, unsigned *kb) { *kb = way == 0 ? 1000 : 500; return answer(gpu); }
int nvmlDeviceGetCurrPcieLinkWidth(Gpu *gpu, unsigned *width) { *width = gpu->index ? 8 : 16; return answer(gpu); }

int nvmlDeviceGetTotalEccErrors(Gpu *gpu, int kind, int counter, uint64_t *count) {
    *count = kind == 1 && counter == 0 ? 2 : 77;
    return gpu->index ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
    *correctable = 1, *uncorrectable = 2, *pending = 0, *failed = 0;
    return answer(gpu);
}

int nvmlGpmQueryDeviceSupport(Gpu *gpu, unsigned *support) { /* version, is supported */
    (void)gpu;
    support[1] = (unsigned)plays("hopper");
    return support[0] == 1 ? OK : INVALID_ARGUMENT;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    if (samples_held > 16) return INVALID_ARGUMENT; /* a reader that frees nothing runs out of them */
    samples_held++;
    return (*sample = calloc(1, sizeof **sample)) ? OK : INVALID_ARGUMENT;
}

int nvmlGpmSampleFree(GpmSample *sample) { samples_held--; free(sample); return OK; }

int nvmlGpmSampleGet(Gpu *gpu, GpmSample *sample) {
    static int number;
    sample->gpu = gpu, sample->number = ++number;
    return OK;
}

int nvmlGpmMetricsGet(GpmRequest *request) {
    GpmSample *first = request->first, *second = request->second;
    if (request->version != 1 || first->gpu != second->gpu || first->number >= second->number) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < request->count; i++) {
        GpmMetric *metric = &request->metrics[i];
        metric->ret = metric->id == 12 ? NOT_SUPPORTED : OK; /* FP32 */
        switch (metric->id) {
            case 1: metric->value = 97; break;   /* graphics */
            case 2: metric->value = 80; break;   /* SM */
            case 5: metric->value = 55; break;   /* tensor */
            case 10: metric->value = 30; break;  /* DRAM */
            case 13: metric->value = 20; break;  /* FP16 */
            case 60: metric->value = 100; break; /* NVLink receives, MiB/s */
            case 61: metric->value = 50; break;  /* NVLink sends */
            default: metric->value = -1;
        }
    }
    return OK;
}
