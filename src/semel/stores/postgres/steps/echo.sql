-- echo: says the number of a request again, in front of its answer.
--
-- A reply that some device between us and the server delivers twice would else pass for the answer to the request
-- after it.
--
-- parameters  1 the request's number on this connection
-- answers     the same

SELECT $1::int8
