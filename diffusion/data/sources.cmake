# SPDX-License-Identifier: Apache-2.0
# Partitions and shards on top of skerry_formats. Only algebra.cc sees LibTorch.
list(APPEND DIFFUSION_SOURCES ${CMAKE_CURRENT_LIST_DIR}/algebra.cc)
list(APPEND DIFFUSION_PLAIN_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/caption_centroids.cc
  ${CMAKE_CURRENT_LIST_DIR}/caption_embeddings.cc ${CMAKE_CURRENT_LIST_DIR}/captions.cc
  ${CMAKE_CURRENT_LIST_DIR}/dataset_index.cc ${CMAKE_CURRENT_LIST_DIR}/dataset_writer.cc
  ${CMAKE_CURRENT_LIST_DIR}/encode_captions.cc ${CMAKE_CURRENT_LIST_DIR}/held_back.cc
  ${CMAKE_CURRENT_LIST_DIR}/imported_features.cc
  ${CMAKE_CURRENT_LIST_DIR}/ingest.cc ${CMAKE_CURRENT_LIST_DIR}/ingest_text.cc
  ${CMAKE_CURRENT_LIST_DIR}/linear_baseline.cc ${CMAKE_CURRENT_LIST_DIR}/moments.cc
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer.cc)
list(APPEND DIFFUSION_PLAIN_TEST_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/encode_captions_test.cc ${CMAKE_CURRENT_LIST_DIR}/ingest_test.cc)

# The promises on real images: skipped where Debian's dataset-fashion-mnist is
# not installed.
skerry_test(fashion_mnist_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fashion_mnist_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/../testing/test_ensemble.cc
  LINKS skerry_diffusion skerry_test_images LABELS slow TIMEOUT 1800)
