# SPDX-License-Identifier: Apache-2.0
# The parts of a block: LibTorch's compositions, loops for the CPU, kernels for
# a card. pointwise.cc sees no LibTorch.
list(APPEND DIFFUSION_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/card.cc ${CMAKE_CURRENT_LIST_DIR}/cpu_kernels.cc
  ${CMAKE_CURRENT_LIST_DIR}/cuda_kernels.cc
  ${CMAKE_CURRENT_LIST_DIR}/kernels.cc ${CMAKE_CURRENT_LIST_DIR}/product.cc
  ${CMAKE_CURRENT_LIST_DIR}/reference_kernels.cc)
list(APPEND DIFFUSION_PLAIN_SOURCES ${CMAKE_CURRENT_LIST_DIR}/pointwise.cc)
list(APPEND DIFFUSION_TEST_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/card_test.cc ${CMAKE_CURRENT_LIST_DIR}/../testing/emulated_card.cc
  ${CMAKE_CURRENT_LIST_DIR}/kernels_test.cc)

# The kernels of a card go into the engine as text.
file(READ ${CMAKE_CURRENT_LIST_DIR}/card_kernels.cu SKERRY_CARD_KERNELS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${CMAKE_CURRENT_LIST_DIR}/card_kernels.cu)
configure_file(${CMAKE_CURRENT_LIST_DIR}/card_kernels.cc.in card_kernels.cc @ONLY)
list(APPEND DIFFUSION_PLAIN_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/card_kernels.cc)
# What lets a compiler take many numbers at once: without the last, GCC 12 turns
# the limits of an exponential into blends.
set(POINTWISE_OPTIONS
    "-O3;-fno-trapping-math;-fno-math-errno;$<$<CXX_COMPILER_ID:GNU>:-fno-thread-jumps>")
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/pointwise.cc
                            PROPERTIES COMPILE_OPTIONS "${POINTWISE_OPTIONS}")
