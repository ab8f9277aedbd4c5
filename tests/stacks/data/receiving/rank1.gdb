[New LWP 3761]
[New LWP 3769]
[New LWP 3770]
[New LWP 3954]
[New LWP 3963]
[New LWP 3964]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
__futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x7ffd2fb2f610, op=393, expected=0, futex_word=0x560ef81ab838) at ./nptl/futex-internal.c:57
To enable execution of this file add
	add-auto-load-safe-path /opt/python/bin/python3.11-gdb.py
line to your configuration file "/etc/gdb/gdbinit".
To completely disable this security protection add
	set auto-load safe-path /
line to your configuration file "/etc/gdb/gdbinit".
For more information about this security protection see the
"Auto-loading safe path" section in the GDB manual.  E.g., run from the shell:
	info "(gdb)Auto-loading safe path"

Thread 7 (Thread 0x7fe1b26526c0 (LWP 3964) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef81f5ea0) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef81f5ea0, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef81f5ea0, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef81f5e50, cond=0x560ef81f5e78) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef81f5e78, mutex=0x560ef81f5e50) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca912501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 6 (Thread 0x7fe1b2e536c0 (LWP 3963) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef81f5ea0) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef81f5ea0, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef81f5ea0, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef81f5e50, cond=0x560ef81f5e78) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef81f5e78, mutex=0x560ef81f5e50) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca912501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 5 (Thread 0x7fe1b36546c0 (LWP 3954) "gloo_tcp_loop"):
#0  0x00007fe1db126f36 in epoll_wait (epfd=15, events=0x7fe1b3653b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007fe1ccd7d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 4 (Thread 0x7fe1bb0276c0 (LWP 3770) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef416a564) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef416a564, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef416a564, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef416a510, cond=0x560ef416a538) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef416a538, mutex=0x560ef416a510) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca912501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 3 (Thread 0x7fe1bb8286c0 (LWP 3769) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef416a564) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef416a564, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef416a564, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef416a510, cond=0x560ef416a538) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef416a538, mutex=0x560ef416a510) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca912501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 2 (Thread 0x7fe1bc0296c0 (LWP 3761) "gloo_tcp_loop"):
#0  0x00007fe1db126f36 in epoll_wait (epfd=7, events=0x7fe1bc028b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007fe1ccd7d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 1 (Thread 0x7fe1db869b80 (LWP 3760) "python"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x7ffd2fb2f610, op=393, expected=0, futex_word=0x560ef81ab838) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef81ab838, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x7ffd2fb2f610, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef81ab838, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x7ffd2fb2f610, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a68bc in __pthread_cond_wait_common (abstime=0x7ffd2fb2f610, clockid=0, mutex=0x560ef81ab7e8, cond=0x560ef81ab810) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_timedwait64 (cond=0x560ef81ab810, mutex=0x560ef81ab7e8, abstime=0x7ffd2fb2f610) at ./nptl/pthread_cond_wait.c:643
#5  0x00007fe1ccd9c856 in gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::duration<long, std::ratio<1l, 1000l> >) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#6  0x00007fe1ca8f9c97 in c10d::ProcessGroupGloo::RecvWork::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1d9ccc5e8 in pybind11::cpp_function::initialize<pybind11::cpp_function::initialize<bool, c10d::Work, std::chrono::duration<long, std::ratio<1l, 1000l> >, pybind11::name, pybind11::is_method, pybind11::sibling, pybind11::arg_v, pybind11::call_guard<pybind11::gil_scoped_release>, char [654]>(bool (c10d::Work::*)(std::chrono::duration<long, std::ratio<1l, 1000l> >), pybind11::name const&, pybind11::is_method const&, pybind11::sibling const&, pybind11::arg_v const&, pybind11::call_guard<pybind11::gil_scoped_release> const&, char const (&) [654])::{lambda(c10d::Work*, std::chrono::duration<long, std::ratio<1l, 1000l> >)#1}, bool, c10d::Work*, std::chrono::duration<long, std::ratio<1l, 1000l> >, pybind11::name, pybind11::is_method, pybind11::sibling, pybind11::arg_v, pybind11::call_guard<pybind11::gil_scoped_release>, char [654]>(pybind11::cpp_function::initialize<bool, c10d::Work, std::chrono::duration<long, std::ratio<1l, 1000l> >, pybind11::name, pybind11::is_method, pybind11::sibling, pybind11::arg_v, pybind11::call_guard<pybind11::gil_scoped_release>, char [654]>(bool (c10d::Work::*)(std::chrono::duration<long, std::ratio<1l, 1000l> >), pybind11::name const&, pybind11::is_method const&, pybind11::sibling const&, pybind11::arg_v const&, pybind11::call_guard<pybind11::gil_scoped_release> const&, char const (&) [654])::{lambda(c10d::Work*, std::chrono::duration<long, std::ratio<1l, 1000l> >)#1}&&, bool (*)(c10d::Work*, std::chrono::duration<long, std::ratio<1l, 1000l> >), pybind11::name const&, pybind11::is_method const&, pybind11::sibling const&, pybind11::arg_v const&, pybind11::call_guard<pybind11::gil_scoped_release> const&, char const (&) [654])::{lambda(pybind11::detail::function_call&)#1}::_FUN(pybind11::detail::function_call&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#8  0x00007fe1d91d2825 in pybind11::cpp_function::dispatcher(_object*, _object* const*, unsigned long, _object*) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#9  0x00007fe1db3a7332 in cfunction_vectorcall_FASTCALL_KEYWORDS (func=0x7fe1be939a30, args=0x7fe1db7cd468, nargsf=<optimized out>, kwnames=<optimized out>) at Objects/methodobject.c:443
#10 0x00007fe1db358ba3 in _PyObject_VectorcallTstate (kwnames=0x0, nargsf=<optimized out>, args=0x7fe1db7cd468, callable=0x7fe1be939a30, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_call.h:92
#11 PyObject_Vectorcall (callable=callable@entry=0x7fe1be939a30, args=args@entry=0x7fe1db7cd468, nargsf=<optimized out>, kwnames=kwnames@entry=0x0) at Objects/call.c:299
#12 0x00007fe1db2fd9c3 in _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:4769
#13 0x00007fe1db450a40 in _PyEval_EvalFrame (throwflag=0, frame=0x7fe1db7cd3e0, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_ceval.h:73
#14 _PyEval_Vector (tstate=0x7fe1db776ef8 <_PyRuntime+166328>, func=<optimized out>, locals=<optimized out>, args=<optimized out>, argcount=<optimized out>, kwnames=<optimized out>) at Python/ceval.c:6434
#15 0x00007fe1db358448 in _PyVectorcall_Call (kwargs=<optimized out>, tuple=<optimized out>, callable=0x7fe1be3b3240, func=0x7fe1db358530 <_PyFunction_Vectorcall>, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Objects/call.c:257
#16 _PyObject_Call (tstate=0x7fe1db776ef8 <_PyRuntime+166328>, callable=0x7fe1be3b3240, args=<optimized out>, kwargs=<optimized out>) at Objects/call.c:328
#17 0x00007fe1db2fe108 in do_call_core (use_tracing=<optimized out>, kwdict=0x7fe1b37102c0, callargs=0x7fe1dad4fee0, func=0x7fe1be3b3240, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Python/ceval.c:7352
#18 _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:5376
#19 0x00007fe1db4508e4 in _PyEval_EvalFrame (throwflag=0, frame=0x7fe1db7cd020, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_ceval.h:73
#20 _PyEval_Vector (args=0x0, argcount=0, kwnames=0x0, locals=0x7fe1daf33100, func=0x7fe1daf0df80, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Python/ceval.c:6434
#21 PyEval_EvalCode (co=co@entry=0x7fe1dad50350, globals=globals@entry=0x7fe1daf33100, locals=locals@entry=0x7fe1daf33100) at Python/ceval.c:1148
#22 0x00007fe1db498909 in run_eval_code_obj (locals=0x7fe1daf33100, globals=0x7fe1daf33100, co=0x7fe1dad50350, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Python/pythonrun.c:1710
#23 run_mod (mod=<optimized out>, filename=filename@entry=0x7fe1daf37b40, globals=globals@entry=0x7fe1daf33100, locals=locals@entry=0x7fe1daf33100, flags=flags@entry=0x7ffd2fb2fe28, arena=arena@entry=0x7fe1dae5b770) at Python/pythonrun.c:1731
#24 0x00007fe1db49a19a in pyrun_file (flags=0x7ffd2fb2fe28, closeit=1, locals=0x7fe1daf33100, globals=0x7fe1daf33100, start=257, filename=0x7fe1daf37b40, fp=<optimized out>) at Python/pythonrun.c:1626
#25 _PyRun_SimpleFileObject (fp=fp@entry=0x560ef192a370, filename=filename@entry=0x7fe1daf37b40, closeit=closeit@entry=1, flags=flags@entry=0x7ffd2fb2fe28) at Python/pythonrun.c:440
#26 0x00007fe1db49a80c in _PyRun_AnyFileObject (fp=0x560ef192a370, filename=filename@entry=0x7fe1daf37b40, closeit=closeit@entry=1, flags=flags@entry=0x7ffd2fb2fe28) at Python/pythonrun.c:79
#27 0x00007fe1db4b9c60 in pymain_run_file_obj (skip_source_first_line=0, filename=0x7fe1daf37b40, program_name=0x7fe1daf37aa0) at Modules/main.c:360
#28 pymain_run_file (config=0x7fe1db75cf40 <_PyRuntime+59904>) at Modules/main.c:379
#29 pymain_run_python (exitcode=0x7ffd2fb2fe24) at Modules/main.c:601
#30 Py_RunMain () at Modules/main.c:680
#31 0x00007fe1db4ba217 in pymain_main (args=0x7ffd2fb2ff30) at Modules/main.c:710
#32 Py_BytesMain (argc=<optimized out>, argv=<optimized out>) at Modules/main.c:734
#33 0x00007fe1db04524a in __libc_start_call_main (main=main@entry=0x560ed6364050 <main>, argc=argc@entry=17, argv=argv@entry=0x7ffd2fb300a8) at ../sysdeps/nptl/libc_start_call_main.h:58
#34 0x00007fe1db045305 in __libc_start_main_impl (main=0x560ed6364050 <main>, argc=17, argv=0x7ffd2fb300a8, init=<optimized out>, fini=<optimized out>, rtld_fini=<optimized out>, stack_end=0x7ffd2fb30098) at ../csu/libc-start.c:360
#35 0x0000560ed6364081 in _start ()
[Inferior 1 (process 3760) detached]
