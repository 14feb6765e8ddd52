"""How alerts reach Alertmanager, webhooks and people: composed into messages, kept in an outbox, sent by receivers."""
