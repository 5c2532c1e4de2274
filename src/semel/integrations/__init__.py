"""Semel inside other people's frameworks, one thin file each. Nothing here is imported by the library itself.

temporal          the window of an entity workflow; tool contracts in activities
temporal_sandbox  refuses to be copied into a workflow's sandbox
"""
