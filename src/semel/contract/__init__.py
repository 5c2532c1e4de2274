"""What a tool or handler declares: signature, arguments, values, secrets, and what an exception means.

contract           the whole of it, checked when it is declared     handlers      what performs a topic's jobs
signature          parameters, types, defaults                      arguments     validated, canonical, stored
shapes             types that arguments and results share           values        results, stored and read
result             ToolCall, ToolResult, ToolError                  result_check  what a person says it was
exact              a function per signature                         exact_kinds   the types that it takes
secrecy            what is written nowhere                          filled        the default `semel.filled`
exception_meaning  what an exception says about the effect          transport     what usual clients raise
transaction        effect and record in one commit                  tool_names    one name, one function
for_model          an error in words for a model                    schema_check  does a value fit a schema
raised             a tool's own exceptions that are answers, rebuilt
schema_arguments   arguments of a tool that has a JSON Schema and no typed function
http_answer        an application as a tool
plain_data         plain data that JSON has no kinds for        undeclared    what is seen of a result's type
"""
