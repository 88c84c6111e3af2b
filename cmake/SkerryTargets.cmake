# SPDX-License-Identifier: Apache-2.0
# Warnings, sanitizers, and the functions by which a folder declares its
# library, its program and its test.

add_library(project_options INTERFACE)
target_compile_options(project_options
  INTERFACE -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor
            -Wno-missing-field-initializers)
target_include_directories(project_options INTERFACE ${CMAKE_SOURCE_DIR})
if(SKERRY_PLANTED)
  target_compile_definitions(project_options INTERFACE SKERRY_PLANTED)
endif()

# Separate from the warnings, since generated code would not pass them.
add_library(sanitizer_options INTERFACE)
if(SKERRY_SANITIZE)
  target_compile_options(sanitizer_options
    INTERFACE -fsanitize=${SKERRY_SANITIZE} -fno-sanitize-recover=all
              -fno-omit-frame-pointer -g1)
  target_compile_definitions(sanitizer_options INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(sanitizer_options INTERFACE -fsanitize=${SKERRY_SANITIZE})
  add_library(sanitizer_defaults OBJECT ${CMAKE_SOURCE_DIR}/tests/sanitize/defaults.cc)
endif()
target_link_libraries(project_options INTERFACE sanitizer_options)

find_program(CCACHE ccache)
if(CCACHE)
  # CCACHE_SLOPPINESS lets ccache work with precompiled headers. CCACHE_BASEDIR
  # lets two presets, and two clones, share cached results.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE})
endif()

# skerry_library(NAME SOURCES a.cc … LINKS skerry_base … PRIVATE_LINKS
# PkgConfig::ZMQ …)
function(skerry_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_LINKS} PRIVATE project_options ${ARG_PRIVATE_LINKS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

# skerry_program(NAME SOURCES main.cc … LINKS …)
function(skerry_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE project_options ${ARG_LINKS})
  if(TARGET sanitizer_defaults)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:sanitizer_defaults>)
  endif()
endfunction()

# The tests labelled `core`: quick to build, without sockets, programs or
# LibTorch. CI runs them under sanitizers.
add_custom_target(core_tests)

# skerry_test(NAME SOURCES a_test.cc … LINKS … [LABELS …] [TIMEOUT seconds]):
# one GoogleTest program, every case a ctest case. The timeout is a hang limit,
# not an expectation.
function(skerry_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(SKERRY_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 10")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  skerry_program(${name} SOURCES ${ARG_SOURCES} LINKS ${ARG_LINKS} GTest::gmock_main)
  if("core" IN_LIST ARG_LABELS)
    add_dependencies(core_tests ${name})
  endif()
  include(GoogleTest)
  # CMake's default of five seconds to list the cases is too short for a
  # sanitized program on a busy machine.
  gtest_discover_tests(${name} TEST_PREFIX ${name}/ DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT ${ARG_TIMEOUT}
                       PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# Builds every generated header and compiles nothing: what clang-tidy needs.
add_custom_target(generated_headers)

# skerry_proto(TARGET protocol/a.proto …): adds the compiled messages, included
# as "protocol/a.pb.h".
function(skerry_proto target)
  set(generated ${CMAKE_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${generated})
  foreach(proto ${ARGN})
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    add_custom_command(
      OUTPUT ${generated}/${stem}.pb.cc ${generated}/${stem}.pb.h
      COMMAND protobuf::protoc --cpp_out=${generated} -I ${CMAKE_SOURCE_DIR}
              ${CMAKE_SOURCE_DIR}/${proto}
      DEPENDS ${CMAKE_SOURCE_DIR}/${proto} VERBATIM)
    target_sources(${target} PRIVATE ${generated}/${stem}.pb.cc ${generated}/${stem}.pb.h)
    list(APPEND headers ${generated}/${stem}.pb.h)
  endforeach()
  add_custom_target(${target}_headers DEPENDS ${headers})
  add_dependencies(generated_headers ${target}_headers)
  target_include_directories(${target} SYSTEM PUBLIC ${generated})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf)
  # A fuzzing build does not instrument generated code: that would be a third of
  # the build, and it calls a library that is not instrumented.
  if(NOT SKERRY_FUZZ)
    target_link_libraries(${target} PRIVATE sanitizer_options)
  endif()
endfunction()
