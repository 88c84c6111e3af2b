# SPDX-License-Identifier: Apache-2.0
# The routers and their measurement. What the statistics are, and fitting two
# scalars, needs no LibTorch.
list(APPEND DIFFUSION_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/analytic.cc ${CMAKE_CURRENT_LIST_DIR}/label_shares.cc
  ${CMAKE_CURRENT_LIST_DIR}/learned.cc ${CMAKE_CURRENT_LIST_DIR}/measure.cc
  ${CMAKE_CURRENT_LIST_DIR}/noised.cc ${CMAKE_CURRENT_LIST_DIR}/velocity.cc)
list(APPEND DIFFUSION_PLAIN_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/curve_fit.cc ${CMAKE_CURRENT_LIST_DIR}/prompt_shares.cc
  ${CMAKE_CURRENT_LIST_DIR}/statistics.cc)
list(APPEND DIFFUSION_TEST_SOURCES ${CMAKE_CURRENT_LIST_DIR}/analytic_test.cc
  ${CMAKE_CURRENT_LIST_DIR}/learned_test.cc)
list(APPEND DIFFUSION_PLAIN_TEST_SOURCES 
  ${CMAKE_CURRENT_LIST_DIR}/curve_fit_test.cc ${CMAKE_CURRENT_LIST_DIR}/../testing/test_ensemble.cc
  ${CMAKE_CURRENT_LIST_DIR}/prompt_shares_test.cc ${CMAKE_CURRENT_LIST_DIR}/velocity_test.cc)
