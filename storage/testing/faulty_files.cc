// SPDX-License-Identifier: Apache-2.0
#include "storage/testing/faulty_files.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry::storage {
namespace {

constexpr std::array<std::string_view, 6> kOperationNames = {"open", "read",   "write",
                                                             "sync", "rename", "remove"};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

class FaultyFiles::Handle final : public File {
 public:
  Handle(FaultyFiles& files, Name name, std::unique_ptr<File> below)
      : files_(files), name_(std::move(name)), below_(std::move(below)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<char> bytes) const override {
    const std::lock_guard lock(files_.mutex_);
    TRY(files_.fail_if_due(FileOperation::kRead));
    ASSIGN_OR_RETURN(const std::size_t read, below_->read_at(offset, bytes));
    if (read > 0 && files_.flips_ > 0 && files_.random_->uniform() < files_.flips_)
      bytes[read / 3] ^= 0x10;
    return read;
  }

  Result<void> write_at(std::uint64_t offset, std::string_view bytes) override {
    return files_.change(*name_, *below_, {offset, std::string(bytes), std::nullopt});
  }
  Result<void> resize(std::uint64_t bytes) override {
    return files_.change(*name_, *below_, {0, {}, bytes});
  }
  Result<std::uint64_t> size() const override { return below_->size(); }

  Result<void> sync() override {
    const std::lock_guard lock(files_.mutex_);
    TRY(files_.fail_if_due(FileOperation::kSync));
    TRY(below_->sync());
    ++files_.syncs_;
    files_.unsynced_.erase(*name_);
    return {};
  }

  void start_writing(std::uint64_t offset, std::uint64_t length) override {
    below_->start_writing(offset, length);
  }
  void forget_cached() override { below_->forget_cached(); }
  int descriptor() const override { return below_->descriptor(); }

 private:
  FaultyFiles& files_;
  Name name_;
  std::unique_ptr<File> below_;
};

void FaultyFiles::fail_at(FileOperation operation, unsigned nth, ErrorCode code,
                          FailedEffect effect) {
  const std::lock_guard lock(mutex_);
  faults_[static_cast<std::size_t>(operation)] = Fault{nth, code, effect};
}

void FaultyFiles::flip_reads(double share, std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  flips_ = share;
  random_.emplace(Position{.seed = seed, .purpose = Purpose::kSimulation});
}

std::optional<FaultyFiles::Fault> FaultyFiles::due(FileOperation operation) const {
  Fault& fault = faults_[static_cast<std::size_t>(operation)];
  if (fault.countdown == 0 || --fault.countdown > 0) return std::nullopt;
  return fault;
}

Result<void> FaultyFiles::fail_if_due(FileOperation operation) const {
  const std::optional<Fault> fault = due(operation);
  if (!fault) return {};
  return fail(fault->code,
              text("injected failure of ", kOperationNames[static_cast<std::size_t>(operation)]));
}

Result<void> FaultyFiles::change(const std::string& path, File& file, Change change) {
  const std::lock_guard lock(mutex_);
  const std::optional<Fault> fault = due(FileOperation::kWrite);
  if (fault && fault->effect == FailedEffect::kNone)
    return fail(fault->code, "injected failure of write");
  if (fault) change.bytes.resize(change.bytes.size() / 2);
  const bool has_name = !path.empty();
  if (has_name && !unsynced_.contains(path)) {
    ASSIGN_OR_RETURN(std::string synced, content(path));
    unsynced_[path].synced = std::move(synced);
  }
  TRY(change.size ? file.resize(*change.size) : file.write_at(change.offset, change.bytes));
  if (has_name) unsynced_[path].changes.push_back(std::move(change));
  if (fault) return fail(fault->code, "injected failure of write");
  return {};
}

Result<std::string> FaultyFiles::content(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, below_.open(path, Open::kRead));
  ASSIGN_OR_RETURN(const std::uint64_t size, file->size());
  std::string bytes(size, '\0');
  ASSIGN_OR_RETURN(const std::size_t read, file->read_at(0, bytes));
  bytes.resize(read);
  return bytes;
}

Result<void> FaultyFiles::put_back(const std::string& path, const std::string& bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, below_.open(path, Open::kCreate));
  return file->write_at(0, bytes);
}

Result<std::unique_ptr<File>> FaultyFiles::open(const std::string& path, Open how) {
  const std::lock_guard lock(mutex_);
  TRY(fail_if_due(FileOperation::kOpen));
  if (how == Open::kRead || below_.exists(path)) {
    if (how == Open::kCreate) {
      ASSIGN_OR_RETURN(const std::unique_ptr<File> file, below_.open(path, Open::kWrite));
      TRY(change(path, *file, {0, {}, 0}));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                     below_.open(path, how == Open::kRead ? Open::kRead : Open::kWrite));
    return std::make_unique<Handle>(*this, name_of(path), std::move(file));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, below_.open(path, how));
  renamings_.push_back({folder_of(path), {}, path, std::nullopt});
  return std::make_unique<Handle>(*this, name_of(path), std::move(file));
}

FaultyFiles::Name FaultyFiles::name_of(const std::string& path) {
  Name& name = names_[path];
  if (name == nullptr) name = std::make_shared<std::string>(path);
  return name;
}

void FaultyFiles::forget(const std::string& path) {
  unsynced_.erase(path);
  if (const auto name = names_.extract(path); !name.empty()) name.mapped()->clear();
}

Result<void> FaultyFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  TRY(fail_if_due(FileOperation::kRename));
  Renaming renaming{folder_of(to), from, to, std::nullopt};
  if (below_.exists(to)) {
    ASSIGN_OR_RETURN(renaming.lost, content(to));
  }
  TRY(below_.rename(from, to));
  forget(to);
  if (auto moved = unsynced_.extract(from); !moved.empty()) {
    moved.key() = to;
    unsynced_.insert(std::move(moved));
  }
  if (auto moved = names_.extract(from); !moved.empty()) {
    moved.key() = *moved.mapped() = to;
    names_.insert(std::move(moved));
  }
  renamings_.push_back(std::move(renaming));
  return {};
}

Result<void> FaultyFiles::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  TRY(fail_if_due(FileOperation::kRemove));
  Renaming renaming{folder_of(path), path, {}, std::nullopt};
  if (below_.exists(path)) {
    ASSIGN_OR_RETURN(renaming.lost, content(path));
  }
  TRY(below_.remove(path));
  forget(path);
  renamings_.push_back(std::move(renaming));
  return {};
}

Result<void> FaultyFiles::sync_folder(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  TRY(fail_if_due(FileOperation::kSync));
  TRY(below_.sync_folder(folder));
  ++syncs_;
  std::erase_if(renamings_, [&](const Renaming& each) { return each.folder == folder; });
  return {};
}

void FaultyFiles::undo(const Renaming& renaming) {
  const auto must = [](const Result<void>& outcome) {
    SKERRY_CHECK(outcome.has_value(), outcome ? std::string() : outcome.error().message);
  };
  if (renaming.to.empty()) return must(put_back(renaming.from, renaming.lost.value_or("")));
  if (renaming.from.empty()) return must(below_.remove(renaming.to));
  must(below_.rename(renaming.to, renaming.from));
  if (renaming.lost) must(put_back(renaming.to, *renaming.lost));
}

void FaultyFiles::crash(std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  Stream random(Position{.seed = seed, .purpose = Purpose::kSimulation});
  for (const auto& [path, file] : unsynced_) {
    std::string bytes = file.synced;
    for (const Change& each : file.changes) {
      const std::uint64_t survives = random.below(3);  // nothing, a part, all
      if (each.size && survives > 0) bytes.resize(*each.size);
      if (each.size || survives == 0) continue;
      const std::size_t written =
          survives == 1 ? random.below(each.bytes.size() + 1) : each.bytes.size();
      bytes.resize(std::max<std::size_t>(bytes.size(), each.offset + written));
      bytes.replace(each.offset, written, each.bytes, 0, written);
    }
    SKERRY_CHECK(put_back(path, bytes).has_value(), "no room for what was there");
  }
  unsynced_.clear();
  for (std::uint64_t lost = random.below(renamings_.size() + 1); lost > 0; --lost) {
    undo(renamings_.back());
    renamings_.pop_back();
  }
  renamings_.clear();
  names_.clear();
  faults_ = {};
}

}  // namespace skerry::storage
