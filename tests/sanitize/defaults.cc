// SPDX-License-Identifier: Apache-2.0
// What the sanitizers are told in every program of a sanitized build, however
// it is started.

// ThreadSanitizer follows only code that was compiled with it. A library that
// was not hands memory from thread to thread without its knowing, and the
// templates of the standard library that it shares with us run as ours. Each
// entry names the library that it excuses:
//   libzmq      messages and their properties, from its I/O thread to whoever receives them
//   libsodium   crypto_secretbox alone: libzmq decrypts with it, on its I/O thread; nothing of ours calls it
//   librocksdb  its memtables and caches, between its writers and its background threads
// called_from_lib looks away from what a library does by itself, and saves the
// time to find out; race is for what it does through our templates.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\n"
         "race:libzmq.so\n"
         "race:crypto_secretbox_open_detached\n"
         "called_from_lib:librocksdb.so\n"
         "race:librocksdb.so\n";
}

// What was found ends the program: most of the tests' programs are ended by
// SIGKILL, and nobody would ask for their exit code.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
