[New LWP 18641]
[New LWP 18663]
[New LWP 18671]
[New LWP 18672]
[New LWP 18717]
[New LWP 18721]
[New LWP 18722]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
__futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561394aba838) at ./nptl/futex-internal.c:57
To enable execution of this file add
	add-auto-load-safe-path /opt/python/bin/python3.11-gdb.py
line to your configuration file "/etc/gdb/gdbinit".
To completely disable this security protection add
	set auto-load safe-path /
line to your configuration file "/etc/gdb/gdbinit".
For more information about this security protection see the
"Auto-loading safe path" section in the GDB manual.  E.g., run from the shell:
	info "(gdb)Auto-loading safe path"

Thread 8 (Thread 0x7f79219526c0 (LWP 18722) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561394c29c60) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x561394c29c60, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x561394c29c60, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2555d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x561394c29c10, cond=0x561394c29c38) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x561394c29c38, mutex=0x561394c29c10) at ./nptl/pthread_cond_wait.c:618
#5  0x00007f7933aa741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f793a512501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 7 (Thread 0x7f79221536c0 (LWP 18721) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561394c29c60) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x561394c29c60, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x561394c29c60, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2555d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x561394c29c10, cond=0x561394c29c38) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x561394c29c38, mutex=0x561394c29c10) at ./nptl/pthread_cond_wait.c:618
#5  0x00007f7933aa741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f793a512501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 6 (Thread 0x7f79229546c0 (LWP 18717) "gloo_tcp_loop"):
#0  0x00007f794b2d5f36 in epoll_wait (epfd=28, events=0x7f7922953b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007f793c97d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 5 (Thread 0x7f792a3266c0 (LWP 18672) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561390bae7f4) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x561390bae7f4, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x561390bae7f4, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2555d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x561390bae7a0, cond=0x561390bae7c8) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x561390bae7c8, mutex=0x561390bae7a0) at ./nptl/pthread_cond_wait.c:618
#5  0x00007f7933aa741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f793a512501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 4 (Thread 0x7f792ab276c0 (LWP 18671) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x7f792ab26240, op=393, expected=0, futex_word=0x7f7918009688) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x7f7918009688, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x7f792ab26240, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x7f7918009688, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x7f792ab26240, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2558bc in __pthread_cond_wait_common (abstime=0x7f792ab26240, clockid=0, mutex=0x7f7918009638, cond=0x7f7918009660) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_timedwait64 (cond=0x7f7918009660, mutex=0x7f7918009638, abstime=0x7f792ab26240) at ./nptl/pthread_cond_wait.c:643
#5  0x00007f793c99c856 in gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::duration<long, std::ratio<1l, 1000l> >) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#6  0x00007f793c96475a in gloo::(anonymous namespace)::ring(gloo::detail::AllreduceOptionsImpl const&, std::function<void (unsigned long, unsigned long)>, std::function<void (unsigned long, unsigned long)>) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f793c96573a in gloo::(anonymous namespace)::allreduce(gloo::detail::AllreduceOptionsImpl const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#8  0x00007f793a529d50 in c10d::AsyncAllreduceWork::allreduce(std::vector<at::Tensor, std::allocator<at::Tensor> >&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#9  0x00007f793a511f2b in c10d::ProcessGroupGloo::AsyncWork::execute(c10::intrusive_ptr<c10d::ProcessGroupGloo::AsyncWork, c10::detail::intrusive_target_default_null_type<c10d::ProcessGroupGloo::AsyncWork> > const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#10 0x00007f793a512143 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#11 0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#12 0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#13 0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 3 (Thread 0x7f792b3286c0 (LWP 18663) "gloo_tcp_loop"):
#0  0x00007f794b2d5f36 in epoll_wait (epfd=21, events=0x7f792b327b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007f793c97d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 2 (Thread 0x7f792bb296c0 (LWP 18641) "pt_tcpstore_uv"):
#0  0x00007f794b2d5cae in __GI_epoll_pwait (epfd=4, events=0x7f792bb25b10, maxevents=1024, timeout=-1, set=0x0) at ../sysdeps/unix/sysv/linux/epoll_pwait.c:40
#1  0x00007f79455df13a in uv.io_poll () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007f79455d0ddf in uv_run () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#3  0x00007f793a55b4ac in c10d::detail::LibUVStoreDaemon::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#4  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#5  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#6  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 1 (Thread 0x7f794b1cbb80 (LWP 18625) "python"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561394aba838) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x561394aba838, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x561394aba838, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2555d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x561394aba7e0, cond=0x561394aba810) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x561394aba810, mutex=0x561394aba7e0) at ./nptl/pthread_cond_wait.c:618
#5  0x00007f7933aa741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f793a5d8713 in c10d::Reducer::finalize_backward() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f793a5d9369 in std::_Function_handler<void (), c10d::Reducer::mark_variable_ready(unsigned long)::{lambda()#1}>::_M_invoke(std::_Any_data const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#8  0x00007f7939a33ffd in torch::autograd::GraphTask::exec_post_processing() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#9  0x00007f7939a38a95 in torch::autograd::GraphTask::mark_as_completed_and_run_post_processing() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#10 0x00007f7939a3f74c in torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#11 0x00007f7939a39e12 in torch::autograd::Engine::execute_with_graph_task(std::shared_ptr<torch::autograd::GraphTask> const&, c10::intrusive_ptr<torch::autograd::Node, c10::detail::intrusive_target_default_null_type<torch::autograd::Node> >, torch::autograd::InputBuffer&&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#12 0x00007f7949208f84 in torch::autograd::python::PythonEngine::execute_with_graph_task(std::shared_ptr<torch::autograd::GraphTask> const&, c10::intrusive_ptr<torch::autograd::Node, c10::detail::intrusive_target_default_null_type<torch::autograd::Node> >, torch::autograd::InputBuffer&&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#13 0x00007f7939a3d12c in torch::autograd::Engine::execute(std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&, std::vector<at::Tensor, std::allocator<at::Tensor> > const&, bool, bool, bool, std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#14 0x00007f7949208f16 in torch::autograd::python::PythonEngine::execute(std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&, std::vector<at::Tensor, std::allocator<at::Tensor> > const&, bool, bool, bool, std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#15 0x00007f794920927c in THPEngine_run_backward(_object*, _object*, _object*) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#16 0x00007f794ada6ce3 in cfunction_call (func=0x7f7922ef4400, args=<optimized out>, kwargs=<optimized out>) at Objects/methodobject.c:542
#17 0x00007f794ad58384 in _PyObject_Call (kwargs=0x7f79229ce400, args=0x7f7922ef5210, callable=0x7f7922ef4400, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at Objects/call.c:343
#18 _PyObject_Call (tstate=0x7f794b176ef8 <_PyRuntime+166328>, callable=0x7f7922ef4400, args=0x7f7922ef5210, kwargs=0x7f79229ce400) at Objects/call.c:313
#19 0x00007f794acfe108 in do_call_core (use_tracing=<optimized out>, kwdict=0x7f79229ce400, callargs=0x7f7922ef5210, func=0x7f7922ef4400, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at Python/ceval.c:7352
#20 _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:5376
#21 0x00007f794ae508e4 in _PyEval_EvalFrame (throwflag=0, frame=0x7f794b1c7020, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_ceval.h:73
#22 _PyEval_Vector (args=0x0, argcount=0, kwnames=0x0, locals=0x7f794aabecc0, func=0x7f794aa99f80, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at Python/ceval.c:6434
#23 PyEval_EvalCode (co=co@entry=0x7f794a898350, globals=globals@entry=0x7f794aabecc0, locals=locals@entry=0x7f794aabecc0) at Python/ceval.c:1148
#24 0x00007f794ae98909 in run_eval_code_obj (locals=0x7f794aabecc0, globals=0x7f794aabecc0, co=0x7f794a898350, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at Python/pythonrun.c:1710
#25 run_mod (mod=<optimized out>, filename=filename@entry=0x7f794aac3be0, globals=globals@entry=0x7f794aabecc0, locals=locals@entry=0x7f794aabecc0, flags=flags@entry=0x7fff6aac8288, arena=arena@entry=0x7f794a9e7770) at Python/pythonrun.c:1731
#26 0x00007f794ae9a19a in pyrun_file (flags=0x7fff6aac8288, closeit=1, locals=0x7f794aabecc0, globals=0x7f794aabecc0, start=257, filename=0x7f794aac3be0, fp=<optimized out>) at Python/pythonrun.c:1626
#27 _PyRun_SimpleFileObject (fp=fp@entry=0x56138e36e370, filename=filename@entry=0x7f794aac3be0, closeit=closeit@entry=1, flags=flags@entry=0x7fff6aac8288) at Python/pythonrun.c:440
#28 0x00007f794ae9a80c in _PyRun_AnyFileObject (fp=0x56138e36e370, filename=filename@entry=0x7f794aac3be0, closeit=closeit@entry=1, flags=flags@entry=0x7fff6aac8288) at Python/pythonrun.c:79
#29 0x00007f794aeb9c60 in pymain_run_file_obj (skip_source_first_line=0, filename=0x7f794aac3be0, program_name=0x7f794aac3b40) at Modules/main.c:360
#30 pymain_run_file (config=0x7f794b15cf40 <_PyRuntime+59904>) at Modules/main.c:379
#31 pymain_run_python (exitcode=0x7fff6aac8284) at Modules/main.c:601
#32 Py_RunMain () at Modules/main.c:680
#33 0x00007f794aeba217 in pymain_main (args=0x7fff6aac8390) at Modules/main.c:710
#34 Py_BytesMain (argc=<optimized out>, argv=<optimized out>) at Modules/main.c:734
#35 0x00007f794b1f424a in __libc_start_call_main (main=main@entry=0x56135103c050 <main>, argc=argc@entry=9, argv=argv@entry=0x7fff6aac8508) at ../sysdeps/nptl/libc_start_call_main.h:58
#36 0x00007f794b1f4305 in __libc_start_main_impl (main=0x56135103c050 <main>, argc=9, argv=0x7fff6aac8508, init=<optimized out>, fini=<optimized out>, rtld_fini=<optimized out>, stack_end=0x7fff6aac84f8) at ../csu/libc-start.c:360
#37 0x000056135103c081 in _start ()
[Inferior 1 (process 18625) detached]
