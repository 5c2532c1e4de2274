"""Powertools for AWS Lambda on Redis: DynamoDB, its first store, is not to be had on one machine.

Without payload validation: its cache store does not keep the payload's hash, so every repeat would be
refused.
"""

NAME, STORES = "aws-lambda-powertools", ("redis",)
INSTALL = ["aws-lambda-powertools==3.37.0", "boto3==1.44.3", "redis==8.1.0", "hiredis==3.5.0"]
PROMISES = {
    "docs, Idempotency, Key features: prevent multiple invocations at the same time": "races",
}
BUSY = ("IdempotencyAlreadyInProgressError",)


def guard(effect, place):
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
    from aws_lambda_powertools.utilities.idempotency.serialization.dataclass import DataclassSerializer
    from aws_lambda_powertools.utilities.idempotency.serialization.pydantic import PydanticSerializer
    from redis import Redis

    config = IdempotencyConfig(
        event_key_jmespath="order",
        expires_after_seconds=int(place.window_s or 3600),
    )
    store, returns = (
        CachePersistenceLayer(client=Redis.from_url(place.url)),
        effect.__annotations__.get("return"),
    )
    written = DataclassSerializer(returns) if hasattr(returns, "__dataclass_fields__") else None
    written = PydanticSerializer(returns) if hasattr(returns, "model_dump") else written
    options = {"persistence_store": store, "config": config, "output_serializer": written}

    @idempotent_function(data_keyword_argument="data", **options)
    def pay(*, data):
        return effect(data["order"], data["amount"])

    return lambda order, amount: pay(data={"order": order, "amount": amount})
