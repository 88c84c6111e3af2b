# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch in the layout of PyPI's torch package, without its own CMake
# files. Those require a CUDA toolkit whenever the package was built with CUDA,
# and a user may have none. Defines the target skerry::torch.
#
# SKERRY_TORCH_DIR names the package folder, or that of a LibTorch, which has
# the same layout. `./dev setup` puts one into the cache folder that is searched
# here.

if(NOT SKERRY_TORCH_DIR)
  set(_torch_cache "$ENV{HOME}/.cache/skerry")
  if(DEFINED ENV{SKERRY_CACHE})
    set(_torch_cache "$ENV{SKERRY_CACHE}")
  endif()
  file(GLOB _torch_candidates "${_torch_cache}/torch-2.11.0/lib/python3*/site-packages/torch")
  if(_torch_candidates)
    list(GET _torch_candidates 0 SKERRY_TORCH_DIR)
  endif()
endif()

include(FindPackageHandleStandardArgs)
include(${CMAKE_CURRENT_LIST_DIR}/TorchPackage.cmake)
skerry_look_at_torch("${SKERRY_TORCH_DIR}" Torch_VERSION _torch_trouble)
# By path, without a search: CMake caches what a search finds, and
# SKERRY_TORCH_DIR may change.
set(TORCH_LIBRARY ${SKERRY_TORCH_DIR}/lib/libtorch.so)
set(TORCH_CPU_LIBRARY ${SKERRY_TORCH_DIR}/lib/libtorch_cpu.so)
set(C10_LIBRARY ${SKERRY_TORCH_DIR}/lib/libc10.so)
if(_torch_trouble)
  set(TORCH_LIBRARY TORCH_LIBRARY-NOTFOUND)
endif()
find_package_handle_standard_args(Torch
  REQUIRED_VARS TORCH_LIBRARY
  VERSION_VAR Torch_VERSION
  REASON_FAILURE_MESSAGE "${_torch_trouble}: run ./dev setup, or ./dev setup --torch DIR, \
or pass -DSKERRY_TORCH_DIR=DIR")

if(Torch_FOUND AND NOT TARGET skerry::torch)
  add_library(skerry::torch INTERFACE IMPORTED)
  target_include_directories(skerry::torch SYSTEM INTERFACE
    ${SKERRY_TORCH_DIR}/include ${SKERRY_TORCH_DIR}/include/torch/csrc/api/include)
  # Link libtorch even if no symbol refers to it: its static initialisers
  # register its operators. It loads its own CUDA libraries, so that an engine
  # also starts with a LibTorch that has none. Put libstdc++ first: libtorch.so
  # exports parts of another version of it, std::filesystem among them. Our own
  # calls would bind to those and crash.
  target_link_libraries(skerry::torch
    INTERFACE -Wl,--no-as-needed stdc++ ${TORCH_LIBRARY} ${TORCH_CPU_LIBRARY})
  target_link_libraries(skerry::torch INTERFACE -Wl,--as-needed ${C10_LIBRARY})
  # A wheel without the libraries that it requires can be linked, not run.
  target_link_options(skerry::torch INTERFACE -Wl,--allow-shlib-undefined)
endif()
