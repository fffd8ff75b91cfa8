// SPDX-License-Identifier: BSD-3-Clause
#include "top/screen.hpp"

#include "cli/failure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#define NCURSES_NOMACROS  // no macros with the names of functions
#include <curses.h>

namespace tool::top {
namespace {

constexpr int escape_ms = 100;  // between the bytes of a function key, over a slow connection
constexpr int escape_code = 27;
constexpr short warning_pair = 1;

bool wants_colour() {
  const char* const refused = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): there is one thread
  return refused == nullptr || *refused == '\0';
}

bool has(const char* capability) {
  const char* const found = ::tigetstr(capability);
  return found != nullptr && found != reinterpret_cast<char*>(-1);
}

// What shows the earlier screen and the cursor again.
std::string farewell() {
  std::string text;
  for (const char* const name : {"rmcup", "cnorm"})
    if (has(name)) text += ::tigetstr(name);
  return text;
}

input meaning_of(int code) {
  switch (code) {
    case KEY_UP: return {key::up};
    case KEY_DOWN: return {key::down};
    case KEY_PPAGE: return {key::page_up};
    case KEY_NPAGE: return {key::page_down};
    case KEY_HOME: return {key::first};
    case KEY_END: return {key::last};
    case KEY_ENTER:
    case '\r':
    case '\n': return {key::enter};
    case KEY_BACKSPACE:
    case '\b':
    case 127: return {key::backspace};
    case escape_code: return {key::escape};
    default: break;
  }
  return code >= ' ' && code <= '~' ? input{key::letter, static_cast<char>(code)} : input{};
}

}  // namespace

struct screen::ncurses {
  SCREEN* terminal = nullptr;
  bool colour = false;

  void set(style how) const {
    const auto attributes = [&]() -> attr_t {
      switch (how) {
        case style::plain: return A_NORMAL;
        case style::bold:
        case style::warning: return A_BOLD;
        case style::title: return A_REVERSE;
        case style::selected: return A_REVERSE | A_BOLD;
      }
      return A_NORMAL;
    }();
    ::wattr_set(stdscr, attributes, how == style::warning && colour ? warning_pair : short{0}, nullptr);
  }
};

// ncurses leaves SIGINT, SIGTERM, SIGTSTP and SIGWINCH alone where they have a handler: that of `signals_`.
screen::screen() : real_(std::make_unique<ncurses>()) {
  std::setlocale(LC_CTYPE, "");  // NOLINT(concurrency-mt-unsafe): there is one thread
  real_->terminal = ::newterm(nullptr, stdout, stdin);
  const bool draws = real_->terminal != nullptr && has("cup");  // moves the cursor, which TERM=dumb cannot
  if (!draws) {
    if (real_->terminal != nullptr) ::delscreen(real_->terminal);
    const char* const name = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): there is one thread
    throw failure(fmt::format("cannot draw on a terminal of the type TERM={}; --once prints one table",
                              name != nullptr ? name : ""));
  }
  terminal_signals::set_farewell(farewell());
  ::set_escdelay(escape_ms);
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  if (wants_colour() && ::has_colors() && ::start_color() == OK) {
    ::use_default_colors();
    real_->colour = ::init_pair(warning_pair, COLOR_RED, -1) == OK;
  }
}

screen::~screen() {
  ::endwin();
  ::delscreen(real_->terminal);
}

std::size_t screen::lines() const noexcept { return static_cast<std::size_t>(std::max(getmaxy(stdscr), 1)); }
std::size_t screen::columns() const noexcept { return static_cast<std::size_t>(std::max(getmaxx(stdscr), 1)); }

void screen::clear() noexcept { ::erase(); }

void screen::put(std::size_t line, std::string_view text, style how) {
  if (line >= lines()) return;
  std::string shown(text.substr(0, columns()));
  if (how == style::title || how == style::selected) shown.resize(columns(), ' ');
  real_->set(how);
  ::mvaddstr(static_cast<int>(line), 0, shown.c_str());
  real_->set(style::plain);
}

void screen::show() noexcept { ::refresh(); }

input screen::take_signal() noexcept {
  const int signal = signals_.next();
  if (ends(signal)) return {key::end, 0, signal};
  if (signal == SIGTSTP) {
    ::endwin();
    signals_.stop_process();
  }
  if (signal == SIGTSTP || signal == SIGCONT) ::reset_prog_mode();  // another program may have changed the terminal
  // Everything is drawn anew: what was drawn between two changes of the size is lost, even if the size is as before.
  ::clearok(curscr, TRUE);
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    ::resizeterm(size.ws_row, size.ws_col);
  return {key::redraw};
}

input screen::wait(std::chrono::milliseconds longest) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (true) {
    // ncurses may have read more keys than it returned.
    if (const int code = ::wgetch(stdscr); code != ERR)
      if (const auto got = meaning_of(code); got.what != key::none) return got;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return {};
    std::array<pollfd, 2> ready{{{STDIN_FILENO, POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), static_cast<int>(left)) < 0 && errno != EINTR) return {key::end};
    if (ready[1].revents != 0) return take_signal();
    if ((ready[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return {key::end};
  }
}

}  // namespace tool::top
