#include "wordpiece.h"

#include <cctype>
#include <fstream>

#include "mytorch/error.h"

using mytorch::Error;
using mytorch::ErrorCode;

namespace {

// The letters from U+00C0 and from U+1E00 on, in lower case and without accents; '.' for those that
// have no accent or are no single letter.
constexpr char kLatin[] =
    "aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.yaaaaaaccccccccdd..eeeeeeeeeegg"
    "gggggghh..iiiiiiiii...jjkk.llllll....nnnnnn...oooooo..rrrrrrsssssssstttt..uuuuuuuuuuuuwwyyyzzz"
    "zzz.................................oo.............uu............................aaiioouuuuuuu"
    "uuu.aaaa....ggkkoooo..j...gg..nnaa....aaaaeeeeiiiioooorrrruuuusstt..hh......aaeeooooooooyy..."
    ".";
constexpr char kLatinAdditional[] =
    "aabbbbbbccddddddddddeeeeeeeeeeffgghhhhhhhhhhiiiikkkkkkllllllllmmmmmmnnnnnnnnoooooooopppprrrrrr"
    "rrssssssssssttttttttuuuuuuuuuuvvvvwwwwwwwwwwxxxxyyzzzzzzhtwy......aaaaaaaaaaaaaaaaaaaaaaaaeeee"
    "eeeeeeeeeeeeiiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyy......";

struct Character {
  uint32_t code;
  std::string bytes;
};

// Reads the character at `at` and moves on. A byte that is no part of one is left out, with code 0.
Character next(const std::string& text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  uint32_t code = first < 0x80 ? first : first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || (text[at + i] & 0xc0) != 0x80) return ++at, Character{0, ""};
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fU);
  }
  Character character{code, text.substr(at, length)};
  at += length;
  return character;
}

bool in(uint32_t code, uint32_t first, uint32_t last) { return code >= first && code <= last; }

bool is_space(uint32_t code) {
  return code == ' ' || code == '\t' || code == '\n' || code == '\r' || code == 0xa0 ||
         in(code, 0x2000, 0x200a) || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_left_out(uint32_t code) {  // controls and combining accents
  return code < 0x20 || in(code, 0x7f, 0x9f) || in(code, 0x300, 0x36f) || code == 0xad ||
         in(code, 0x200b, 0x200f) || in(code, 0x202a, 0x202e) || code == 0xfeff || code == 0xfffd;
}

bool is_alone(uint32_t code) {  // punctuation, and Chinese characters
  if (code < 0x80) return std::ispunct(static_cast<int>(code)) != 0;
  for (const uint32_t mark : {0xa1U, 0xa7U, 0xabU, 0xb6U, 0xb7U, 0xbbU, 0xbfU}) {
    if (code == mark) return true;
  }
  return in(code, 0x2010, 0x2027) || in(code, 0x2030, 0x2043) || in(code, 0x2045, 0x2051) ||
         in(code, 0x3001, 0x3003) || in(code, 0x3008, 0x3011) || in(code, 0x3400, 0x4dbf) ||
         in(code, 0x4e00, 0x9fff) || in(code, 0xf900, 0xfaff) || in(code, 0xff01, 0xff0f) ||
         in(code, 0x20000, 0x2fa1f);
}

std::string lower(const Character& character) {
  const uint32_t code = character.code;
  if (code < 0x80) return {static_cast<char>(std::tolower(static_cast<int>(code)))};
  char base = '.';
  if (in(code, 0xc0, 0x24f)) base = kLatin[code - 0xc0];
  if (in(code, 0x1e00, 0x1eff)) base = kLatinAdditional[code - 0x1e00];
  if (base != '.') return {base};
  if (code == 0xc6 || code == 0xd8 || code == 0xde ||
      code == 0xd0) {  // 32 after it is its small form
    return {'\xc3', static_cast<char>(character.bytes[1] + 0x20)};
  }
  return character.bytes;
}

}  // namespace

WordPiece::WordPiece(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const auto id = static_cast<int64_t>(ids_.size());
    ids_.emplace(line, id);
  }
  if (ids_.empty()) {
    throw Error(ErrorCode::kIo, "file " + path +
                                    " cannot be read: give the folder of an uncased BERT model "
                                    "with its vocab.txt");
  }
  cls_ = id_of("[CLS]");
  sep_ = id_of("[SEP]");
  unknown_ = id_of("[UNK]");
}

int64_t WordPiece::id_of(const std::string& token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) throw Error(ErrorCode::kIo, "the vocabulary has no token " + token);
  return found->second;
}

void WordPiece::add_word(const std::vector<std::string>& letters, std::vector<int64_t>& ids) const {
  constexpr size_t kLongest = 100;
  const size_t before = ids.size();
  for (size_t begin = 0; begin < letters.size();) {
    size_t end = letters.size() > kLongest ? begin : letters.size();
    for (; end > begin; --end) {
      std::string piece = begin == 0 ? "" : "##";
      for (size_t i = begin; i < end; ++i) piece += letters[i];
      if (const auto found = ids_.find(piece); found != ids_.end()) {
        ids.push_back(found->second);
        break;
      }
    }
    if (end == begin) {  // a word with an unknown part is unknown
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    begin = end;
  }
}

std::vector<int64_t> WordPiece::encode(const std::string& text, size_t longest) const {
  std::vector<int64_t> ids{cls_};
  std::vector<std::string> word;
  const auto finish = [&] {
    add_word(word, ids);
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const Character character = next(text, at);
    if (is_space(character.code)) {
      finish();
    } else if (is_left_out(character.code)) {
      continue;
    } else if (is_alone(character.code)) {
      finish();
      word.push_back(character.bytes);
      finish();
    } else {
      word.push_back(lower(character));
    }
  }
  finish();
  if (ids.size() + 1 > longest) ids.resize(longest - 1);
  ids.push_back(sep_);
  return ids;
}
