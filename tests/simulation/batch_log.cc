// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/batch_log.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "base/hash.h"
#include "tests/planted/planted.h"

namespace skerry::simulation {
namespace {

constexpr std::uint64_t kDeleted = ~0ULL;

void put(std::string& out, std::uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::optional<std::uint64_t> take_number(std::string_view& from) {
  std::uint64_t number = 0;
  if (from.size() < sizeof number) return std::nullopt;
  std::memcpy(&number, from.data(), sizeof number);
  from.remove_prefix(sizeof number);
  return number;
}

std::optional<std::string> take_text(std::string_view& from, std::uint64_t length) {
  if (from.size() < length) return std::nullopt;
  std::string text(from.substr(0, length));
  from.remove_prefix(length);
  return text;
}

// As many as are whole.
std::vector<coordinator::Write> decode_writes(std::string_view body) {
  std::vector<coordinator::Write> writes;
  while (const auto key_length = take_number(body)) {
    const auto key = take_text(body, *key_length);
    const auto length = key ? take_number(body) : std::nullopt;
    if (!length) break;
    coordinator::Write write{*key, std::nullopt};
    if (*length != kDeleted) {
      write.value = take_text(body, *length);
      if (!write.value) break;
    }
    writes.push_back(std::move(write));
  }
  return writes;
}

}  // namespace

std::string encode_batch(const std::vector<coordinator::Write>& writes) {
  std::string body;
  for (const coordinator::Write& write : writes) {
    put(body, write.key.size());
    body += write.key;
    put(body, write.value ? write.value->size() : kDeleted);
    if (write.value) body += *write.value;
  }
  std::string record;
  put(record, body.size());
  return record + blake2b(body).raw() + body;
}

std::vector<std::vector<coordinator::Write>> decode_batches(std::string_view log) {
  std::vector<std::vector<coordinator::Write>> batches;
  while (const auto length = take_number(log)) {
    const auto hash = take_text(log, Hash::kBytes);
    if (!hash) break;
    const auto body = take_text(
        log, planted("torn_batch_kept") ? std::min<std::uint64_t>(*length, log.size()) : *length);
    if (!body || (blake2b(*body).raw() != *hash && !planted("torn_batch_kept"))) break;
    batches.push_back(decode_writes(*body));
  }
  return batches;
}

}  // namespace skerry::simulation
