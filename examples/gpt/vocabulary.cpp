#include "vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "mytorch/error.h"

using mytorch::Error;
using mytorch::ErrorCode;

namespace {

constexpr const char* kBytes = "bytes\n";
constexpr const char* kChars = "chars\n";

// Splits UTF-8 into characters. A byte that is no part of one is a character of its own.
std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    for (size_t k = 1; k < length; ++k) {
      const bool follows = i + k < text.size() && (text[i + k] & 0xc0) == 0x80;
      if (!follows) length = 1;
    }
    characters.push_back(text.substr(i, length));
    i += length;
  }
  return characters;
}

class Bytes final : public Vocabulary {
 public:
  int64_t size() const override { return 256; }
  std::vector<int64_t> encode(const std::string& text) const override {
    std::vector<int64_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string text;
    for (const int64_t token : tokens) text += static_cast<char>(token);
    return text;
  }
  std::string saved() const override { return kBytes; }
};

class Characters final : public Vocabulary {
 public:
  explicit Characters(const std::string& text) {
    const std::vector<std::string> all = characters_of(text);
    for (const std::string& character : std::set<std::string>(all.begin(), all.end())) {
      ids_[character] = static_cast<int64_t>(characters_.size());
      characters_.push_back(character);
    }
  }
  int64_t size() const override { return static_cast<int64_t>(characters_.size()); }
  std::vector<int64_t> encode(const std::string& text) const override {
    std::vector<int64_t> tokens;
    for (const std::string& character : characters_of(text)) {
      const auto found = ids_.find(character);
      if (found == ids_.end()) {
        throw Error(ErrorCode::kValue, "the character '" + character +
                                           "' does not occur in the text of the training: leave it "
                                           "out, or train with --tokens bytes");
      }
      tokens.push_back(found->second);
    }
    return tokens;
  }
  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string text;
    for (const int64_t token : tokens) text += characters_[static_cast<size_t>(token)];
    return text;
  }
  std::string saved() const override {
    std::string text = kChars;
    for (const std::string& character : characters_) text += character;
    return text;
  }

 private:
  std::vector<std::string> characters_;
  std::map<std::string, int64_t> ids_;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw Error(ErrorCode::kIo, "file " + path.string() + " cannot be read");
  return text;
}

}  // namespace

std::unique_ptr<Vocabulary> make_vocabulary(const std::string& kind, const std::string& text) {
  if (kind == "bytes") return std::make_unique<Bytes>();
  if (kind == "chars") return std::make_unique<Characters>(text);
  throw Error(ErrorCode::kValue, "--tokens " + kind + ": give chars or bytes");
}

std::unique_ptr<Vocabulary> load_vocabulary(const std::string& path) {
  const std::string text = read_file(path), chars = kChars;
  if (text == kBytes) return std::make_unique<Bytes>();
  if (text.compare(0, chars.size(), chars) == 0) {
    return std::make_unique<Characters>(text.substr(chars.size()));
  }
  throw Error(ErrorCode::kIo, "file " + path + " is no vocabulary: `gpt train` writes it");
}

std::string read_text(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return read_file(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  if (files.empty()) throw Error(ErrorCode::kIo, "folder " + path + " has no files");
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += read_file(file);
  return text;
}
