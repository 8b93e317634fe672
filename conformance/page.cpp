#include "conformance/page.h"

#include <fstream>
#include <iterator>
#include <string_view>

#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file || text.empty()) throw Error(ErrorCode::kIo, "[report] cannot read " + path);
  return text;
}

void replace(std::string& text, std::string_view mark, const std::string& by) {
  const size_t at = text.find(mark);
  if (at == std::string::npos) {
    throw Error(ErrorCode::kIo, "[report] page.html has no " + std::string(mark));
  }
  text.replace(at, mark.size(), by);
}

// Returns JSON that a browser does not end at a tag inside of a string.
std::string for_script(const Json& data) {
  std::string escaped;
  // Names of files may have bytes that are not UTF-8.
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string for_html(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

void write_page(const std::string& kind, const std::string& title, const Json& data,
                const std::string& path) {
  const std::string folder = share_folder() + "/report/";
  std::string page = read_text(folder + "page.html");
  // The marks in order: what is inserted is not searched for later ones.
  const std::string script = read_text(folder + kind + ".js");
  replace(page, "@SCRIPT@", script);
  replace(page, "@TITLE@", for_html(title));
  replace(page, "@DATA@", for_script(data));
  std::ofstream file(path);
  file << page;
  if (!file.flush()) throw Error(ErrorCode::kIo, "[report] cannot write " + path);
}

void check_writable(const std::string& command, const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return;
  throw Error(ErrorCode::kIo, "[" + command + "] cannot write " + path);
}

}  // namespace mytorch::conformance
