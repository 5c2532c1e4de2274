"""Semel inside other people's frameworks, one thin file each. Nothing here is imported by the library itself.

asgi              an `Idempotency-Key` honoured in front of any ASGI application
langgraph         LangGraph and LangChain agents
pydantic_ai       Pydantic AI
openai_agents     OpenAI Agents
google_adk        Google ADK
agent_framework   Microsoft Agent Framework
anthropic         Anthropic's tool runner
crewai            CrewAI
mcp               MCP, the official servers and every client
mcp_guard         what the servers of MCP share
fastmcp           FastMCP
engines           what the integrations of engines share
dbos              DBOS
restate           Restate
celery            Celery
sqlalchemy        an ORM session on the ledger's own transaction
temporal          the window of an entity workflow; tool contracts in activities
temporal_sandbox  refuses to be copied into a workflow's sandbox
"""
