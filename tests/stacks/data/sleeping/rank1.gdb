[New LWP 18655]
[New LWP 18666]
[New LWP 18667]
[New LWP 18719]
[New LWP 18723]
[New LWP 18724]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
0x00007f794b29c545 in __GI___clock_nanosleep (clock_id=clock_id@entry=1, flags=flags@entry=1, req=req@entry=0x7fff6aac7f50, rem=rem@entry=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48
To enable execution of this file add
	add-auto-load-safe-path /opt/python/bin/python3.11-gdb.py
line to your configuration file "/etc/gdb/gdbinit".
To completely disable this security protection add
	set auto-load safe-path /
line to your configuration file "/etc/gdb/gdbinit".
For more information about this security protection see the
"Auto-loading safe path" section in the GDB manual.  E.g., run from the shell:
	info "(gdb)Auto-loading safe path"

Thread 7 (Thread 0x7f79221526c0 (LWP 18724) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561394bfa420) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x561394bfa420, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x561394bfa420, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2555d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x561394bfa3d0, cond=0x561394bfa3f8) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x561394bfa3f8, mutex=0x561394bfa3d0) at ./nptl/pthread_cond_wait.c:618
#5  0x00007f7933aa741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f793a512501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 6 (Thread 0x7f79229536c0 (LWP 18723) "pt_gloo_runloop"):
#0  __futex_abstimed_wait_common64 (private=0, cancel=true, abstime=0x0, op=393, expected=0, futex_word=0x561394bfa420) at ./nptl/futex-internal.c:57
#1  __futex_abstimed_wait_common (futex_word=futex_word@entry=0x561394bfa420, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0, cancel=cancel@entry=true) at ./nptl/futex-internal.c:87
#2  0x00007f794b252f7b in __GI___futex_abstimed_wait_cancelable64 (futex_word=futex_word@entry=0x561394bfa420, expected=expected@entry=0, clockid=clockid@entry=0, abstime=abstime@entry=0x0, private=private@entry=0) at ./nptl/futex-internal.c:139
#3  0x00007f794b2555d8 in __pthread_cond_wait_common (abstime=0x0, clockid=0, mutex=0x561394bfa3d0, cond=0x561394bfa3f8) at ./nptl/pthread_cond_wait.c:503
#4  ___pthread_cond_wait (cond=0x561394bfa3f8, mutex=0x561394bfa3d0) at ./nptl/pthread_cond_wait.c:618
#5  0x00007f7933aa741d in std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#6  0x00007f793a512501 in c10d::ProcessGroupGloo::runLoop(int) () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#7  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#8  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#9  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 5 (Thread 0x7f79231546c0 (LWP 18719) "gloo_tcp_loop"):
#0  0x00007f794b2d5f36 in epoll_wait (epfd=15, events=0x7f7923153b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007f793c97d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 4 (Thread 0x7f792ab276c0 (LWP 18667) "pt_gloo_runloop"):
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

Thread 3 (Thread 0x7f792b3286c0 (LWP 18666) "pt_gloo_runloop"):
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

Thread 2 (Thread 0x7f792bb296c0 (LWP 18655) "gloo_tcp_loop"):
#0  0x00007f794b2d5f36 in epoll_wait (epfd=7, events=0x7f792bb28b80, maxevents=64, timeout=10) at ../sysdeps/unix/sysv/linux/epoll_wait.c:30
#1  0x00007f793c97d62d in gloo::transport::tcp::Loop::run() () from /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
#2  0x00007f7933ad44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007f794b2561f5 in start_thread (arg=<optimized out>) at ./nptl/pthread_create.c:442
#4  0x00007f794b2d68ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 1 (Thread 0x7f794b1cbb80 (LWP 18653) "python"):
#0  0x00007f794b29c545 in __GI___clock_nanosleep (clock_id=clock_id@entry=1, flags=flags@entry=1, req=req@entry=0x7fff6aac7f50, rem=rem@entry=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48
#1  0x00007f794af15ada in pysleep (timeout=<optimized out>) at ./Modules/timemodule.c:2159
#2  time_sleep (self=<optimized out>, timeout_obj=<optimized out>) at ./Modules/timemodule.c:383
#3  0x00007f794ada6ee2 in cfunction_vectorcall_O (func=0x7f794aa73790, args=0x7f794b1c7318, nargsf=<optimized out>, kwnames=<optimized out>) at Objects/methodobject.c:514
#4  0x00007f794ad58ba3 in _PyObject_VectorcallTstate (kwnames=0x7f794aa956f0, nargsf=<optimized out>, args=0x7f794b1c7318, callable=0x7f794aa73790, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_call.h:92
#5  PyObject_Vectorcall (callable=callable@entry=0x7f794aa73790, args=args@entry=0x7f794b1c7318, nargsf=<optimized out>, kwnames=kwnames@entry=0x0) at Objects/call.c:299
#6  0x00007f794acfd9c3 in _PyEval_EvalFrameDefault (tstate=<optimized out>, frame=<optimized out>, throwflag=<optimized out>) at Python/ceval.c:4769
#7  0x00007f794ae508e4 in _PyEval_EvalFrame (throwflag=0, frame=0x7f794b1c7020, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at ./Include/internal/pycore_ceval.h:73
#8  _PyEval_Vector (args=0x0, argcount=0, kwnames=0x0, locals=0x7f794aabecc0, func=0x7f794aa99f80, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at Python/ceval.c:6434
#9  PyEval_EvalCode (co=co@entry=0x7f794a898350, globals=globals@entry=0x7f794aabecc0, locals=locals@entry=0x7f794aabecc0) at Python/ceval.c:1148
#10 0x00007f794ae98909 in run_eval_code_obj (locals=0x7f794aabecc0, globals=0x7f794aabecc0, co=0x7f794a898350, tstate=0x7f794b176ef8 <_PyRuntime+166328>) at Python/pythonrun.c:1710
#11 run_mod (mod=<optimized out>, filename=filename@entry=0x7f794aac3be0, globals=globals@entry=0x7f794aabecc0, locals=locals@entry=0x7f794aabecc0, flags=flags@entry=0x7fff6aac8288, arena=arena@entry=0x7f794a9e7770) at Python/pythonrun.c:1731
#12 0x00007f794ae9a19a in pyrun_file (flags=0x7fff6aac8288, closeit=1, locals=0x7f794aabecc0, globals=0x7f794aabecc0, start=257, filename=0x7f794aac3be0, fp=<optimized out>) at Python/pythonrun.c:1626
#13 _PyRun_SimpleFileObject (fp=fp@entry=0x56138e36e370, filename=filename@entry=0x7f794aac3be0, closeit=closeit@entry=1, flags=flags@entry=0x7fff6aac8288) at Python/pythonrun.c:440
#14 0x00007f794ae9a80c in _PyRun_AnyFileObject (fp=0x56138e36e370, filename=filename@entry=0x7f794aac3be0, closeit=closeit@entry=1, flags=flags@entry=0x7fff6aac8288) at Python/pythonrun.c:79
#15 0x00007f794aeb9c60 in pymain_run_file_obj (skip_source_first_line=0, filename=0x7f794aac3be0, program_name=0x7f794aac3b40) at Modules/main.c:360
#16 pymain_run_file (config=0x7f794b15cf40 <_PyRuntime+59904>) at Modules/main.c:379
#17 pymain_run_python (exitcode=0x7fff6aac8284) at Modules/main.c:601
#18 Py_RunMain () at Modules/main.c:680
#19 0x00007f794aeba217 in pymain_main (args=0x7fff6aac8390) at Modules/main.c:710
#20 Py_BytesMain (argc=<optimized out>, argv=<optimized out>) at Modules/main.c:734
#21 0x00007f794b1f424a in __libc_start_call_main (main=main@entry=0x56135103c050 <main>, argc=argc@entry=9, argv=argv@entry=0x7fff6aac8508) at ../sysdeps/nptl/libc_start_call_main.h:58
#22 0x00007f794b1f4305 in __libc_start_main_impl (main=0x56135103c050 <main>, argc=9, argv=0x7fff6aac8508, init=<optimized out>, fini=<optimized out>, rtld_fini=<optimized out>, stack_end=0x7fff6aac84f8) at ../csu/libc-start.c:360
#23 0x000056135103c081 in _start ()
[Inferior 1 (process 18653) detached]
