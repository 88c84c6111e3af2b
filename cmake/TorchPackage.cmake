# SPDX-License-Identifier: Apache-2.0
# Checks whether the engine can be built against a LibTorch. FindTorch.cmake
# checks the folder that it found, `./dev setup --torch DIR` the one that it is
# given: cmake -DSKERRY_TORCH_DIR=DIR -P cmake/TorchPackage.cmake

# PyPI's packages have the needed C++ ABI since this version. Only 2.11 has been
# built against.
set(SKERRY_TORCH_LEAST 2.7)

# Sets VERSION_OUT to its version, and TROUBLE_OUT to why it cannot be used;
# empty if it can.
function(skerry_look_at_torch dir version_out trouble_out)
  set(${version_out} "" PARENT_SCOPE)
  foreach(file lib/libtorch.so lib/libtorch_cpu.so lib/libc10.so
               include/torch/csrc/api/include/torch/torch.h
               share/cmake/Torch/TorchConfig.cmake share/cmake/Torch/TorchConfigVersion.cmake)
    if(NOT EXISTS "${dir}/${file}")
      set(${trouble_out} "expected the folder of a LibTorch \
(libtorch, or the torch folder of a Python installation), \
found no ${file} in '${dir}'" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(STRINGS "${dir}/share/cmake/Torch/TorchConfigVersion.cmake" line
       REGEX "^set\\(PACKAGE_VERSION " LIMIT_COUNT 1)
  if(NOT line MATCHES "\"([0-9]+\\.[0-9]+[0-9.]*)")
    set(${trouble_out} "the LibTorch in '${dir}' does not say its version" PARENT_SCOPE)
    return()
  endif()
  set(version ${CMAKE_MATCH_1})
  set(${version_out} ${version} PARENT_SCOPE)
  if(version VERSION_LESS SKERRY_TORCH_LEAST)
    set(${trouble_out} "the engine needs LibTorch ${SKERRY_TORCH_LEAST} or newer, \
found ${version} in '${dir}'" PARENT_SCOPE)
    return()
  endif()
  # The constructor of its exceptions takes a string; its mangled name shows
  # which kind.
  file(STRINGS "${dir}/lib/libc10.so" new_abi
       REGEX "N3c105ErrorC[12]ENS_14SourceLocationENSt7__cxx11" LIMIT_COUNT 1)
  if(NOT new_abi)
    set(${trouble_out} "the LibTorch in '${dir}' was built with _GLIBCXX_USE_CXX11_ABI=0, \
and everything here with 1: \
take one that was built with 1 (PyPI's since 2.7, or libtorch-cxx11-abi)" PARENT_SCOPE)
    return()
  endif()
  set(${trouble_out} "" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  skerry_look_at_torch("${SKERRY_TORCH_DIR}" version trouble)
  if(trouble)
    message(FATAL_ERROR "${trouble}")
  endif()
  message("LibTorch ${version}")
endif()
