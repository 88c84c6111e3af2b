// SPDX-License-Identifier: Apache-2.0
// What the sanitizers are told in every program of a sanitized build, however
// it is started.

// ThreadSanitizer follows only code that was compiled with it. It does not see
// how other libraries pass memory between threads. Templates of the standard
// library that they share with us run as our code. Each entry excuses a
// library:
//   - libzmq: messages and their properties, from its I/O thread to receivers.
//   - libsodium: crypto_secretbox only. libzmq decrypts with it on its I/O
//     thread; our code never calls it.
//   - librocksdb: memtables and caches, between its writers and its background
//     threads.
//
// The entry called_from_lib ignores what a library does by itself, which saves
// time. The entry race covers what it does through our templates.
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
