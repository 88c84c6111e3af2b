// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "protocol/enrol.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "tests/fuzz/sane.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace protocol;

template <class Message>
Verdict judge(std::string_view bytes, std::size_t limit_bytes,
              Result<Message> (*parse)(std::string_view)) {
  const Result<Message> parsed = parse(bytes);
  if (!parsed) return Verdict::kRefused;
  SKERRY_CHECK(bytes.size() <= limit_bytes, bytes.size(), " bytes were accepted");
  check_sane(*parsed);
  check_comes_back(*parsed, parse);
  return Verdict::kAccepted;
}

Verdict enrol_request(std::string_view bytes) {
  const std::string key(kKeyBytes, 'k');
  if (const auto request = parse_enrol_request(bytes))
    static_cast<void>(check_enrol_request(*request, key, key));
  return judge(bytes, kEnrolMessageBytes, parse_enrol_request);
}

}  // namespace

// e, E: enrol request, reply; r, R: control request, reply; b: blob message.
Verdict control(std::string_view input) {
  if (input.empty()) return Verdict::kRefused;
  const std::string_view bytes = input.substr(1);
  switch (input.front()) {
    case 'e':
      return enrol_request(bytes);
    case 'E':
      return judge(bytes, kControlMessageBytes, parse_enrol_reply);
    case 'r':
      return judge(bytes, kControlMessageBytes, parse_control_request);
    case 'R':
      return judge(bytes, kControlMessageBytes, parse_control_reply);
    case 'b':
      return judge(bytes, kBlobMessageBytes, parse_blob_message);
    default:
      return Verdict::kRefused;
  }
}

}  // namespace skerry::fuzz
