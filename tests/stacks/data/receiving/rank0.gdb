[New LWP 3759]
[New LWP 3766]
[New LWP 3773]
[New LWP 3774]
[New LWP 3953]
[New LWP 3957]
[New LWP 3958]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
__futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef809ad68) at ./nptl/futex-internal.c:57
To enable execution of this file add
	add-auto-load-safe-path /opt/python/bin/python3.11-gdb.py
line to your configuration file "/etc/gdb/gdbinit".
To completely disable this security protection add
	set auto-load safe-path /
line to your configuration file "/etc/gdb/gdbinit".
For more information about this security protection see the
"Auto-loading safe path" section in the GDB manual.  E.g., run from the shell:
	info "(gdb)Auto-loading safe path"

Thread 8 (Thread 0x7fe1b1e526c0 (LWP 3958) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef81eda20) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef81eda20, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef81eda20, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef81ed9d0, cond=0x560ef81ed9f8) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef81ed9f8, mutex=0x560ef81ed9d0) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca912501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 7 (Thread 0x7fe1b26536c0 (LWP 3957) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef81eda20) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef81eda20, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef81eda20, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef81ed9d0, cond=0x560ef81ed9f8) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef81ed9f8, mutex=0x560ef81ed9d0) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca912501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 6 (Thread 0x7fe1b2e546c0 (LWP 3953) "gloo_tcp_loop"):
#0  0x00007fe1db126f36 in epoll_wait (epfd=28, events=0x7fe1b2e53b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007fe1ccd7d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 5 (Thread 0x7fe1ba8266c0 (LWP 3774) "pt_gloo_runloop"):
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

Thread 4 (Thread 0x7fe1bb0276c0 (LWP 3773) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x7fe1bb026240, op=393, expected=0, futex_word=0x7fe1a8009688) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x7fe1a8009688, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x7fe1bb026240, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x7fe1a8009688, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x7fe1bb026240, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a68bc in __pthread_cond_wait_common (abstime=0x7fe1bb026240, clockid=0, mutex=0x7fe1a8009638, cond=0x7fe1a8009660) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_timedwait64 (cond=0x7fe1a8009660, mutex=0x7fe1a8009638, abstime=0x7fe1bb026240) at ./nptl/pthread_cond_wait.c:643
#5  0x00007fe1ccd9c856 in gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::duration<long, std::ratio<1l, 1000l> >) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#6  0x00007fe1ccd6475a in gloo::(anonymous namespace)::ring(gloo::detail::AllreduceOptionsImpl const&, std::function<void (unsigned long, unsigned long)>, std::function<void (unsigned long, unsigned long)>) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1ccd6573a in gloo::(anonymous namespace)::allreduce(gloo::detail::AllreduceOptionsImpl const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#8  0x00007fe1ca929d50 in c10d::AsyncAllreduceWork::allreduce(std::vector<at::Tensor, std::allocator<at::Tensor> >&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#9  0x00007fe1ca911f2b in c10d::ProcessGroupGloo::AsyncWork::execute(c10::intrusive_ptr<c10d::ProcessGroupGloo::AsyncWork, c10::detail::intrusive_target_default_null_type<c10d::ProcessGroupGloo::AsyncWork> > const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#10 0x00007fe1ca912143 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#11 0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#12 0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#13 0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 3 (Thread 0x7fe1bb8286c0 (LWP 3766) "gloo_tcp_loop"):
#0  0x00007fe1db126f36 in epoll_wait (epfd=21, events=0x7fe1bb827b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007fe1ccd7d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 2 (Thread 0x7fe1bc0296c0 (LWP 3759) "pt_tcpstore_uv"):
#0  0x00007fe1db126cae in __GI_epoll_pwait (epfd=4, events=0x7fe1bc025b10, maxevents=1024, timeout=-1, set=0x0) at ../sysdeps/unix/sysv/linux/epoll_pwait.c:40
#1  0x00007fe1d59df13a in uv.io_poll () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007fe1d59d0ddf in uv_run () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#3  0x00007fe1ca95b4ac in c10d::detail::LibUVStoreDaemon::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#4  0x00007fe1c3ed44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#5  0x00007fe1db0a71f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#6  0x00007fe1db1278ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 1 (Thread 0x7fe1db869b80 (LWP 3758) "python"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x560ef809ad68) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x560ef809ad68, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007fe1db0a3f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x560ef809ad68, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007fe1db0a65d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x560ef809ad10, cond=0x560ef809ad40) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x560ef809ad40, mutex=0x560ef809ad10) at ./nptl/pthread_cond_wait.c:618
#5  0x00007fe1c3ea741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007fe1ca9d8713 in c10d::Reducer::finalize_backward() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007fe1ca9d9369 in std::_Function_handler<void (), c10d::Reducer::mark_variable_ready(unsigned long)::{lambda()#1}>::_M_invoke(std::_Any_data const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#8  0x00007fe1c9e33ffd in torch::autograd::GraphTask::exec_post_processing() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#9  0x00007fe1c9e38a95 in torch::autograd::GraphTask::mark_as_completed_and_run_post_processing() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#10 0x00007fe1c9e3f74c in torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#11 0x00007fe1c9e39e12 in torch::autograd::Engine::execute_with_graph_task(std::shared_ptr<torch::autograd::GraphTask> const&, c10::intrusive_ptr<torch::autograd::Node, c10::detail::intrusive_target_default_null_type<torch::autograd::Node> >, torch::autograd::InputBuffer&&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#12 0x00007fe1d9608f84 in torch::autograd::python::PythonEngine::execute_with_graph_task(std::shared_ptr<torch::autograd::GraphTask> const&, c10::intrusive_ptr<torch::autograd::Node, c10::detail::intrusive_target_default_null_type<torch::autograd::Node> >, torch::autograd::InputBuffer&&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#13 0x00007fe1c9e3d12c in torch::autograd::Engine::execute(std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&, std::vector<at::Tensor, std::allocator<at::Tensor> > const&, bool, bool, bool, std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#14 0x00007fe1d9608f16 in torch::autograd::python::PythonEngine::execute(std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&, std::vector<at::Tensor, std::allocator<at::Tensor> > const&, bool, bool, bool, std::vector<torch::autograd::Edge, std::allocator<torch::autograd::Edge> > const&) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#15 0x00007fe1d960927c in THPEngine_run_backward(_object*, _object*, _object*) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so
#16 0x00007fe1db3a6ce3 in cfunction_call (func=0x7fe1b2ee4c70, args=<optimized out>, kwargs=<optimized out>) at Objects/methodobject.c:542
#17 0x00007fe1db358384 in _PyObject_Call (kwargs=0x7fe1b3cc0600, args=0x7fe1b99aa2f0, callable=0x7fe1b2ee4c70, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Objects/call.c:343
#18 _PyObject_Call (tstate=0x7fe1db776ef8 <_PyRuntime+166328>, callable=0x7fe1b2ee4c70, args=0x7fe1b99aa2f0, kwargs=0x7fe1b3cc0600) at Objects/call.c:313
#19 0x00007fe1db2fe108 in do_call_core (use_tracing=<optimized out>, kwdict=0x7fe1b3cc0600, callargs=0x7fe1b99aa2f0, func=0x7fe1b2ee4c70, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Python/ceval.c:7352
#20 _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:5376
#21 0x00007fe1db4508e4 in _PyEval_EvalFrame (throwflag=0, frame=0x7fe1db7cd020, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_ceval.h:73
#22 _PyEval_Vector (args=0x0, argcount=0, kwnames=0x0, locals=0x7fe1daf33100, func=0x7fe1daf0df80, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Python/ceval.c:6434
#23 PyEval_EvalCode (co=co@entry=0x7fe1dad50350, globals=globals@entry=0x7fe1daf33100, locals=locals@entry=0x7fe1daf33100) at Python/ceval.c:1148
#24 0x00007fe1db498909 in run_eval_code_obj (locals=0x7fe1daf33100, globals=0x7fe1daf33100, co=0x7fe1dad50350, tstate=0x7fe1db776ef8 <_PyRuntime+166328>) at Python/pythonrun.c:1710
#25 run_mod (mod=<optimized out>, filename=filename@entry=0x7fe1daf37b40, globals=globals@entry=0x7fe1daf33100, locals=locals@entry=0x7fe1daf33100, flags=flags@entry=0x7ffd2fb2fe28, arena=arena@entry=0x7fe1dae5b770) at Python/pythonrun.c:1731
#26 0x00007fe1db49a19a in pyrun_file (flags=0x7ffd2fb2fe28, closeit=1, locals=0x7fe1daf33100, globals=0x7fe1daf33100, start=257, filename=0x7fe1daf37b40, fp=<optimized out>) at Python/pythonrun.c:1626
#27 _PyRun_SimpleFileObject (fp=fp@entry=0x560ef192a370, filename=filename@entry=0x7fe1daf37b40, closeit=closeit@entry=1, flags=flags@entry=0x7ffd2fb2fe28) at Python/pythonrun.c:440
#28 0x00007fe1db49a80c in _PyRun_AnyFileObject (fp=0x560ef192a370, filename=filename@entry=0x7fe1daf37b40, closeit=closeit@entry=1, flags=flags@entry=0x7ffd2fb2fe28) at Python/pythonrun.c:79
#29 0x00007fe1db4b9c60 in pymain_run_file_obj (skip_source_first_line=0, filename=0x7fe1daf37b40, program_name=0x7fe1daf37aa0) at Modules/main.c:360
#30 pymain_run_file (config=0x7fe1db75cf40 <_PyRuntime+59904>) at Modules/main.c:379
#31 pymain_run_python (exitcode=0x7ffd2fb2fe24) at Modules/main.c:601
#32 Py_RunMain () at Modules/main.c:680
#33 0x00007fe1db4ba217 in pymain_main (args=0x7ffd2fb2ff30) at Modules/main.c:710
#34 Py_BytesMain (argc=<optimized out>, argv=<optimized out>) at Modules/main.c:734
#35 0x00007fe1db04524a in __libc_start_call_main (main=main@entry=0x560ed6364050 <main>, argc=argc@entry=17, argv=argv@entry=0x7ffd2fb300a8) at ../sysdeps/nptl/libc_start_call_main.h:58
#36 0x00007fe1db045305 in __libc_start_main_impl (main=0x560ed6364050 <main>, argc=17, argv=0x7ffd2fb300a8, init=<optimized out>, fini=<optimized out>, rtld_fini=<optimized out>, stack_end=0x7ffd2fb30098) at ../csu/libc-start.c:360
#37 0x0000560ed6364081 in _start ()
[Inferior 1 (process 3758) detached]
