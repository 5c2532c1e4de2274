"""The shop as a Django application."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from tests.edge.shop import Shop, on_thread, peak_bytes


def application(shop: Shop, guard: Callable[[Any], Any]) -> Any:
    """With the middleware around the application: what a view raises is Django's own answer."""

    async def charge(request: Any, order: int = 0) -> Any:
        answer = JsonResponse(await shop.charge(request.body.decode()), status=201)
        answer["X-Shop"] = "open"
        answer.set_cookie("session", "secret")
        return answer

    async def slow(request: Any) -> Any:
        return JsonResponse(await shop.slowly(request.body.decode()), status=201)

    async def open_gate(request: Any, name: str) -> Any:
        shop.gate(name).set()
        return HttpResponse()

    async def status(request: Any, status: int) -> Any:
        return JsonResponse(await shop.charge(request.body.decode()), status=status)

    async def raises(request: Any) -> Any:
        await shop.charge(request.body.decode())
        raise RuntimeError("no")

    async def stream(request: Any) -> Any:
        what, query = request.body.decode(), request.GET
        shop.effect(what)
        parts = shop.stream(what, int(query["parts"]), query.get("gated") == "true")
        return StreamingHttpResponse(parts, status=201)

    def pay(request: Any) -> Any:  # on a thread
        body = json.loads(request.body)
        number = shop.effect(body["what"])
        key = shop.pay(body["what"])
        status = 502 if number == 1 and body.get("fails") else 201
        return JsonResponse({"paid": key, "thread": on_thread()}, status=status)

    async def peak(request: Any) -> Any:
        return JsonResponse(peak_bytes(), safe=False)

    urls = type("urls", (), {})
    urls.urlpatterns = [  # type: ignore[attr-defined]
        path("charges", charge),
        path("orders/<int:order>/refund", charge),
        path("slashed/", charge),
        path("slow", slow),
        path("gates/<str:name>", open_gate),
        path("status/<int:status>", status),
        path("raises", raises),
        path("stream", stream),
        path("pay", pay),
        path("peak", peak),
    ]
    if not settings.configured:
        settings.configure(
            ROOT_URLCONF=urls,
            SECRET_KEY="of a test",
            ALLOWED_HOSTS=["*"],
            MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
            USE_TZ=True,
        )
        django.setup()
    return guard(get_asgi_application())
