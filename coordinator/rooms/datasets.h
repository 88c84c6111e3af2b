// SPDX-License-Identifier: Apache-2.0
// The datasets, and their uploads by the people who added them.
//
// Invariant: the files of every dataset are named objects. A dataset becomes
// ready once, when all its files are whole here. While it has a source, at most
// Config::fetches_of_dataset missing files are fetched from it at a time.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "coordinator/rooms/objects.h"

namespace skerry::coordinator {

// A dataset that holds weights to start from instead of images.
bool is_weights(const pb::DatasetAdd& content);
// Whether its files are those that a dataset must have.
Result<void> check_files(const pb::DatasetAdd& content);
// Whether a run trains on this dataset or starts from it.
bool uses(const pb::RunSpec& spec, const DatasetName& dataset);
// RETURNS: a digest that identifies the content.
std::string digest_of(const pb::DatasetAdd& content);

class Datasets : Room {
 public:
  // LIFETIME: the other rooms outlive this one.
  Datasets(Context& the_context, EventLog& events, const Runs& runs, Objects& objects)
      : Room(the_context), events_(events), runs_(runs), objects_(objects) {}

  const Table<Dataset>& all() const { return datasets_; }
  const Dataset& at(const DatasetName& name) const { return datasets_.at(name); }
  const Dataset* find(const DatasetName& name) const;
  const pb::DatasetAdd& content(const DatasetName& name) const {
    return at(name).record->content();
  }
  // Calls visit(name, file) for each file of each dataset.
  template <class Visit>
  void visit_files(Visit visit) const {
    for (const auto& [name, dataset] : datasets_) {
      for (const pb::DatasetFile& file : dataset.record->content().files()) visit(name, file);
    }
  }
  const Run* user_of(const DatasetName& dataset) const;
  // RETURNS: what an expert's node reads to train: its shards, and the initial
  // weights if the run names some. The router's node reads all shards.
  std::vector<const pb::DatasetFile*> files_of(const Run& run, std::uint32_t expert) const;
  // RETURNS: the size of each expert's files, as files_of() has them, in one
  // pass over the dataset.
  std::vector<std::uint64_t> bytes_of_files(const Run& run) const;
  bool is_fetching(const Hash& manifest) const;
  pb::DatasetInfo info(const Dataset& dataset, bool with_files) const;

  Result<void> check_room() const;
  void insert(const pb::DatasetAdd& content);
  void erase(const DatasetName& name);
  // Fetches the missing files from this person.
  void upload(const DatasetName& name, const NodeId& source);
  void check_ready(const DatasetName& name) { check_ready(datasets_.at(name)); }
  // Continues every upload, also of files that were found damaged.
  void pump();
  void stored(const Hash& manifest);
  void failed(const Hash& manifest);
  void progress(const ObjectProgress& event);
  // RETURNS: what is wrong; empty if nothing is.
  std::string load(stored::Dataset record);

 private:
  void check_ready(Dataset& dataset);
  void pump(Dataset& dataset);
  bool is_whole(const Dataset& dataset) const;

  EventLog& events_;
  const Runs& runs_;
  Objects& objects_;
  Table<Dataset> datasets_{context.journal, Kind::kDataset};
};

}  // namespace skerry::coordinator
