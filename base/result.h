// SPDX-License-Identifier: Apache-2.0
// Expected failures as values.
//
// A function that can fail for a reason outside the program (peers, disk,
// configuration, a person's input) returns Result<T>; it never throws. A broken
// invariant of our own is a CHECK (check.h). Messages tell a person what was
// expected, what was found, and what to do.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace skerry {

// Every code has a caller that reacts to it. The CLI maps codes to exit
// statuses; the daemon retries or stops.
enum class ErrorCode {
  kInvalid,       // input that is malformed or out of range
  kNotFound,      // a name or id that is not there
  kConflict,      // exists already, or is not in a state that allows the request
  kUnauthorised,  // key, token, role or signature not accepted
  // the other side or a resource is away for now; a retry may help
  kUnavailable,
  kTimeout,    // no answer in time
  kFenced,     // a higher epoch holds the lease
  kExhausted,  // a limit, a disk or a quota is full
  kCorrupt,    // bytes on disk or from a peer that fail their check
  // the operating system refused; after a failed write or fsync the process
  // must end
  kIo,
  // a card (GPU) or its driver failed: the input is not to blame, another
  // process may succeed
  kCard,
};

// "invalid", "not_found", … : the words used in JSON and logs.
const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result() = default;
  Result(Base base) : Base(std::move(base)) {}
  Result(Error error) : Base(tl::unexpected<Error>(std::move(error))) {}
};

inline Error fail(ErrorCode code, std::string message) { return Error{code, std::move(message)}; }

}  // namespace skerry

#define SKERRY_CONCAT_INNER(a, b) a##b
#define SKERRY_CONCAT(a, b) SKERRY_CONCAT_INNER(a, b)

// TRY(expression): returns the error of a Result from the enclosing function,
// else goes on.
#define TRY(expression)                                              \
  do {                                                               \
    if (auto try_result_ = (expression); !try_result_.has_value()) { \
      return ::skerry::Error(std::move(try_result_).error());        \
    }                                                                \
  } while (false)

// ASSIGN_OR_RETURN(auto value, expression): binds the value or returns the
// error.
#define ASSIGN_OR_RETURN(declaration, expression)                                \
  auto SKERRY_CONCAT(result_, __LINE__) = (expression);                          \
  if (!SKERRY_CONCAT(result_, __LINE__).has_value()) {                           \
    return ::skerry::Error(std::move(SKERRY_CONCAT(result_, __LINE__)).error()); \
  }                                                                              \
  declaration = std::move(*SKERRY_CONCAT(result_, __LINE__))
