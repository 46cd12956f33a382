"""Servers that cases use: a process for each case that speaks the service's protocol, and counts its traffic."""

from runner.execute.services.manage import Address, Services, named_servers, reach

SERVICES = ("redis",)
"""The words of ``services``; each is a capability too."""

__all__ = ["SERVICES", "Address", "Services", "named_servers", "reach"]
