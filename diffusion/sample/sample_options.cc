// SPDX-License-Identifier: Apache-2.0
// What a person may ask of sampling; apart from the drawing itself, which needs
// LibTorch.
#include "base/text.h"
#include "diffusion/sample/sample.h"

namespace skerry::diffusion {
namespace {

constexpr std::uint32_t kMostSamples = 1 << 20;
constexpr std::uint32_t kMostSteps = 10000;

}  // namespace

Result<Solver> parse_solver(std::string_view name) {
  if (name == "euler") return Solver::kEuler;
  if (name == "heun") return Solver::kHeun;
  if (name == "adams") return Solver::kAdams;
  return fail(ErrorCode::kInvalid,
              text("expected a solver euler, heun or adams, found '", name, "'"));
}

Result<Route> parse_route(std::string_view name) {
  if (name == "ancestral") return Route::kAncestral;
  if (name == "top1") return Route::kTop1;
  if (name == "top2") return Route::kTop2;
  if (name == "full") return Route::kFull;
  return fail(ErrorCode::kInvalid,
              text("expected a route ancestral, top1, top2 or full, found '", name, "'"));
}

Result<RouterKind> parse_router(std::string_view name) {
  if (name == "analytic") return RouterKind::kAnalytic;
  if (name == "learned") return RouterKind::kLearned;
  return fail(ErrorCode::kInvalid,
              text("expected a router analytic or learned, found '", name, "'"));
}

Result<void> validate(const SampleSpec& spec) {
  if (spec.solver == Solver::kAdams && (spec.route == Route::kTop1 || spec.route == Route::kTop2)) {
    return fail(
        ErrorCode::kInvalid,
        "the solver adams looks back a step, where top1 and top2 may have asked other experts: use "
        "euler or heun, or the route ancestral or full");
  }
  if (spec.precision != "fp32" && spec.precision != "bf16") {
    return fail(ErrorCode::kInvalid,
                text("expected a precision fp32 or bf16, found '", spec.precision, "'"));
  }
  if (spec.count < 1 || spec.count > kMostSamples) {
    return fail(ErrorCode::kInvalid, text("the number of samples must be between 1 and ",
                                          kMostSamples, ", found ", spec.count));
  }
  if (spec.steps < 1 || spec.steps > kMostSteps) {
    return fail(ErrorCode::kInvalid,
                text("steps must be between 1 and ", kMostSteps, ", found ", spec.steps));
  }
  if (!(spec.guidance >= 0 && spec.guidance <= 100)) {
    return fail(ErrorCode::kInvalid,
                text("guidance must be between 0 and 100, found ", spec.guidance));
  }
  if (spec.batch_size < 1 || spec.batch_size > 4096 || spec.threads < 1 || spec.threads > 1024) {
    return fail(ErrorCode::kInvalid,
                "batch size must be between 1 and 4096, threads between 1 and 1024");
  }
  return {};
}

}  // namespace skerry::diffusion
