# LibTorch as PyPI's torch package lays it out, without its own CMake files: those insist on a CUDA toolkit
# whenever the package was built with CUDA, and a user may have none. Defines the target skerry::torch.
#
# SKERRY_TORCH_DIR names the package folder; `./dev setup` puts one in the cache folder that is searched here.

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
find_library(TORCH_CPU_LIBRARY torch_cpu PATHS ${SKERRY_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(TORCH_LIBRARY torch PATHS ${SKERRY_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(C10_LIBRARY c10 PATHS ${SKERRY_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(TORCH_CUDA_LIBRARY torch_cuda PATHS ${SKERRY_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(C10_CUDA_LIBRARY c10_cuda PATHS ${SKERRY_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_package_handle_standard_args(Torch
  REQUIRED_VARS TORCH_LIBRARY TORCH_CPU_LIBRARY C10_LIBRARY
  REASON_FAILURE_MESSAGE "LibTorch not found: run ./dev setup, or pass -DSKERRY_TORCH_DIR=DIR with the torch package's folder")

if(Torch_FOUND AND NOT TARGET skerry::torch)
  add_library(skerry::torch INTERFACE IMPORTED)
  target_include_directories(skerry::torch SYSTEM INTERFACE
    ${SKERRY_TORCH_DIR}/include ${SKERRY_TORCH_DIR}/include/torch/csrc/api/include)
  # libtorch registers its operators by static initialisers: it must be linked even where no symbol asks for it.
  # libstdc++ comes first: libtorch.so exports parts of another version of it, std::filesystem among them, and our own
  # calls would land there and crash.
  target_link_libraries(skerry::torch INTERFACE -Wl,--no-as-needed stdc++ ${TORCH_LIBRARY} ${TORCH_CPU_LIBRARY})
  if(TORCH_CUDA_LIBRARY)
    target_link_libraries(skerry::torch INTERFACE ${TORCH_CUDA_LIBRARY} ${C10_CUDA_LIBRARY})
  endif()
  target_link_libraries(skerry::torch INTERFACE -Wl,--as-needed ${C10_LIBRARY})
  target_link_options(skerry::torch INTERFACE -Wl,-rpath,${SKERRY_TORCH_DIR}/lib)
endif()
