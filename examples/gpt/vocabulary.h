// The tokens of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  virtual int64_t size() const = 0;
  // Throws Error(kValue) for text that has no tokens here.
  virtual std::vector<int64_t> encode(const std::string& text) const = 0;
  virtual std::string decode(const std::vector<int64_t>& tokens) const = 0;
  // Returns the content of a file from which load_vocabulary makes it again.
  virtual std::string saved() const = 0;
};

// Makes the vocabulary of a text: "chars" are its characters, "bytes" all bytes.
std::unique_ptr<Vocabulary> make_vocabulary(const std::string& kind, const std::string& text);
std::unique_ptr<Vocabulary> load_vocabulary(const std::string& path);

// Returns the content of a file, or of all files of a folder in the order of their names. Links are
// left out. Throws Error(kIo).
std::string read_text(const std::string& path);
