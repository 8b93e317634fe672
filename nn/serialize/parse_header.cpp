#include <algorithm>
#include <utility>

#include "core/types/errors.h"
#include "nlohmann/json.hpp"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn {
namespace {

using Entry = SafetensorsFile::Entry;

[[noreturn]] void fail_header(const std::string& path, const std::string& reason) {
  fail(ErrorCode::kIo, "[load_safetensors] file ", path, ": ", reason);
}

[[noreturn]] void fail_tensor(const std::string& path, const std::string& name,
                              const std::string& reason) {
  fail(ErrorCode::kIo, "[load_safetensors] file ", path, ", tensor '", shown(name), "': ", reason);
}

// Receives the parser's events. The few levels of the format are the states, so deeper nesting is
// rejected where it begins, and no document tree is built.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader* header)
      : path_(path), header_(*header) {}

  bool null() override {
    // The format's metadata are optional: some writers write them as null where there are none.
    if (at_ != At::kHeader || key_ != kMetadataKey) return unexpected("null");
    note_metadata();
    return true;
  }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_integer(number_integer_t value) override {
    if (at_ == At::kShape || at_ == At::kOffsets) {
      fail_tensor(path_, key_, absl::StrCat(list_name(), " has the negative number ", value));
    }
    return unexpected("a number");
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::kShape && at_ != At::kOffsets) return unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      fail_tensor(path_, key_, absl::StrCat(list_name(), " has ", value, ", which is too large"));
    }
    std::vector<int64_t>& list = at_ == At::kShape ? entry_.shape : offsets_;
    const size_t most = at_ == At::kShape ? kMaxDims : 2;
    if (list.size() == most) {
      fail_tensor(path_, key_, absl::StrCat(list_name(), " has more than ", most, " numbers"));
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_float(number_float_t, const string_t& text) override {
    if (at_ == At::kShape || at_ == At::kOffsets) {
      fail_tensor(path_, key_,
                  absl::StrCat(list_name(), " has ", shown(text),
                               ", which is not a whole number of 63 bits"));
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (at_ == At::kMetadata) {
      if (!header_.metadata.emplace(key_, std::move(value)).second) {
        fail_header(path_, absl::StrCat("its metadata have the key '", shown(key_), "' twice"));
      }
      return true;
    }
    if (at_ != At::kTensor || field_ != kDtype) return unexpected("a string");
    const std::optional<ScalarType> dtype = parse_dtype(value);
    if (!dtype.has_value()) {
      fail_tensor(path_, key_,
                  absl::StrCat("dtype ", shown(value),
                               " is not supported: convert the tensor before saving it"));
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (at_ == At::kStart) {
      at_ = At::kHeader;
    } else if (at_ == At::kHeader && key_ == kMetadataKey) {
      note_metadata();
      at_ = At::kMetadata;
    } else if (at_ == At::kHeader) {
      at_ = At::kTensor;
      entry_ = {};
      offsets_.clear();
      fields_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (at_ != At::kTensor) {
      key_ = std::move(value);
      return true;
    }
    field_ = value == "dtype"          ? kDtype
             : value == "shape"        ? kShape
             : value == "data_offsets" ? kOffsets
                                       : kNoField;
    if (field_ == kNoField) {
      fail_tensor(
          path_, key_,
          absl::StrCat("has a field '", shown(value), "', which the format does not define"));
    }
    if ((fields_ & field_) != 0) {
      fail_tensor(path_, key_, absl::StrCat("has the field '", value, "' twice"));
    }
    fields_ |= field_;
    return true;
  }

  bool end_object() override {
    if (at_ == At::kTensor) {
      add_entry();
      at_ = At::kHeader;
    } else {
      at_ = at_ == At::kMetadata ? At::kHeader : At::kEnd;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (at_ == At::kTensor && field_ == kShape) {
      at_ = At::kShape;
    } else if (at_ == At::kTensor && field_ == kOffsets) {
      at_ = At::kOffsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    at_ = At::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    fail_header(path_,
                absl::StrCat("its header is not JSON at byte ", position, " (", shown(error.what()),
                             "): the file is damaged or has another format"));
  }

 private:
  enum class At { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum Field : unsigned { kNoField = 0, kDtype = 1, kShape = 2, kOffsets = 4 };

  void note_metadata() {
    if (std::exchange(has_metadata_, true)) fail_header(path_, "it has metadata twice");
  }

  const char* list_name() const { return at_ == At::kShape ? "shape" : "data_offsets"; }

  bool unexpected(const char* what) const {
    switch (at_) {
      case At::kStart:
      case At::kEnd:
        fail_header(path_, absl::StrCat("its header is ", what, ", not an object"));
      case At::kHeader:
        fail_tensor(path_, key_, absl::StrCat("has ", what, " where an object is needed"));
      case At::kMetadata:
        fail_header(path_, absl::StrCat("its metadata have ", what, " under '", shown(key_),
                                        "' where a string is needed"));
      case At::kTensor:
        fail_tensor(path_, key_, absl::StrCat("has ", what, " as ", field_name()));
      case At::kShape:
      case At::kOffsets:
        fail_tensor(path_, key_,
                    absl::StrCat(list_name(), " has ", what,
                                 " where a number is "
                                 "needed"));
    }
    return false;
  }

  const char* field_name() const {
    return field_ == kDtype ? "dtype" : field_ == kShape ? "shape" : "data_offsets";
  }

  void add_entry() {
    for (const auto& [field, name] : {std::pair{kDtype, "dtype"}, std::pair{kShape, "shape"},
                                      std::pair{kOffsets, "data_offsets"}}) {
      if ((fields_ & field) == 0) fail_tensor(path_, key_, absl::StrCat("has no ", name));
    }
    if (offsets_.size() != 2) fail_tensor(path_, key_, "data_offsets has not two numbers");
    entry_.name = key_;
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.entries.push_back(std::move(entry_));
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  At at_ = At::kStart;
  std::string key_;  // of the header or the metadata: the tensor being read
  Field field_ = kNoField;
  unsigned fields_ = 0;  // fields seen in this tensor
  bool has_metadata_ = false;
  Entry entry_{};
  std::vector<int64_t> offsets_;
};

void check_names(const std::vector<Entry>& entries, const std::string& path) {
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.name == b.name; });
  if (twice != entries.end()) fail_tensor(path, twice->name, "is in the header twice");
}

void check_bytes(const Entry& entry, uint64_t data_bytes, const std::string& path) {
  const std::string offsets = absl::StrCat("data_offsets [", entry.begin, ", ", entry.end, "]");
  const std::string array =
      absl::StrCat("shape ", shape_str(entry.shape), " of ", format_dtype(entry.dtype));
  if (entry.begin > entry.end)
    fail_tensor(path, entry.name, absl::StrCat(offsets, " run backwards"));
  if (static_cast<uint64_t>(entry.end) > data_bytes) {
    fail_tensor(path, entry.name,
                absl::StrCat(offsets, " go past the ", data_bytes,
                             " bytes of data "
                             "in the file: it is damaged or truncated"));
  }
  const std::optional<int64_t> bytes = bytes_of(entry.shape, entry.dtype);
  if (!bytes.has_value()) {
    fail_tensor(path, entry.name, absl::StrCat(array, " is larger than any memory"));
  }
  if (*bytes != entry.end - entry.begin) {
    fail_tensor(path, entry.name,
                absl::StrCat(array, " needs ", *bytes, " bytes, but ", offsets, " are ",
                             entry.end - entry.begin));
  }
}

// Checks that the tensors' bytes follow one another and fill the file. Overlapping or hidden bytes
// could make a file mean different things to different readers.
void check_cover(const std::vector<Entry>& entries, uint64_t data_bytes, const std::string& path) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t covered = 0;
  for (const Entry* entry : order) {
    if (entry->begin < covered) {
      fail_tensor(path, entry->name,
                  absl::StrCat("its bytes begin at ", entry->begin,
                               ", inside "
                               "those of another tensor, which end at ",
                               covered));
    }
    if (entry->begin > covered) {
      fail_tensor(path, entry->name,
                  absl::StrCat("its bytes begin at ", entry->begin,
                               ", and those "
                               "from ",
                               covered, " on belong to no tensor"));
    }
    covered = entry->end;
  }
  if (static_cast<uint64_t>(covered) != data_bytes) {
    fail_header(path, absl::StrCat("it has ", data_bytes - static_cast<uint64_t>(covered),
                                   " bytes after those of its last tensor"));
  }
}

// Makes the tensors that the metadata name as such complex128.
void restore_complex(SafetensorsHeader* header, const std::string& path) {
  for (auto each = header->metadata.lower_bound(std::string(kComplexKey));
       each != header->metadata.end() && each->first.starts_with(kComplexKey);
       each = header->metadata.erase(each)) {
    const std::string name = each->first.substr(kComplexKey.size());
    const auto found = std::lower_bound(
        header->entries.begin(), header->entries.end(), name,
        [](const Entry& entry, const std::string& name) { return entry.name < name; });
    if (found == header->entries.end() || found->name != name || found->dtype != kFloat64 ||
        found->shape.empty() || found->shape.back() != 2) {
      fail_tensor(path, name,
                  "is complex128 by the metadata, but is no F64 tensor with a last dimension of 2");
    }
    found->dtype = kComplex128;
    found->shape.pop_back();
  }
}

}  // namespace

SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes,
                               const std::string& path) {
  if (json.empty() || json.front() != '{') {
    fail_header(path,
                "its header does not begin with '{': the file is damaged or has another format");
  }
  // The JSON library treats a zero byte as the end of its input and would ignore the rest.
  if (const size_t zero = json.find('\0'); zero != json.npos) {
    fail_header(path, absl::StrCat("its header is not JSON at byte ", zero + 1,
                                   " (a zero byte): the file is damaged or has another format"));
  }
  SafetensorsHeader header;
  HeaderReader reader(path, &header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  std::sort(header.entries.begin(), header.entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  check_names(header.entries, path);
  for (const Entry& entry : header.entries) check_bytes(entry, data_bytes, path);
  check_cover(header.entries, data_bytes, path);
  restore_complex(&header, path);
  return header;
}

}  // namespace mytorch::nn
