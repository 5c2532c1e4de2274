"""The log: events and the hash chain over them, its verification, its reports, its export.

events     one per transition; folding, sealing         verify            is the log whole
leaves     what names the event that was changed        questions         decisions against their events
pages      reading without holding anybody up           export            as JSON
heads      how far the chain reaches                    backwards         from its end, newest first
duplicates calls that look like one intention           duplicate_report  the report of them
"""
