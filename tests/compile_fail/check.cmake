# SPDX-License-Identifier: BSD-3-Clause
# Compiles ${source} twice. As it is, it must be refused with a message that matches the regular expression after
# "Refused with:" in its second line; with FIXED defined, which removes the mistake, it must be accepted.
file(STRINGS ${source} expected REGEX "^// Refused with: " LIMIT_COUNT 1)
string(REPLACE "// Refused with: " "" expected "${expected}")
if(NOT expected)
  message(FATAL_ERROR "${source} does not say what it is refused with")
endif()
string(REPLACE ":" ";-I" includes "-I${includes}")

set(command ${compiler} -std=c++20 -Wall -Werror -fsyntax-only ${includes} ${source})

execute_process(COMMAND ${command} -DFIXED RESULT_VARIABLE status ERROR_VARIABLE said)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "refused without the mistake too:\n${said}")
endif()

execute_process(COMMAND ${command} RESULT_VARIABLE status ERROR_VARIABLE said)
if(status EQUAL 0)
  message(FATAL_ERROR "accepted, mistake and all")
endif()
if(NOT said MATCHES "${expected}")
  message(FATAL_ERROR "refused, but without saying '${expected}':\n${said}")
endif()
