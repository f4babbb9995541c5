{% macro volary__date(year, month, day) -%}
  date '{{ modules.datetime.date(year, month, day).isoformat() }}'
{%- endmacro %}


{#- A date plus hours would be a date again, so it becomes a timestamp first. -#}
{% macro volary__dateadd(datepart, interval, from_date_or_timestamp) -%}
  {%- set unit = datepart | lower -%}
  {%- set count = 'cast((' ~ interval ~ ') as bigint)' -%}
  {%- set from = '(' ~ from_date_or_timestamp ~ ')' -%}
  {%- if unit == 'quarter' -%}
    {%- set unit = 'month' -%}
    {%- set count = count ~ ' * 3' -%}
  {%- elif unit in ('hour', 'minute', 'second', 'millisecond', 'microsecond') -%}
    {%- set from = "date_trunc('microsecond', " ~ from_date_or_timestamp ~ ')' -%}
  {%- endif -%}
  ({{ from }} + cast({{ count }} || ' {{ unit }}' as interval))
{%- endmacro %}


{#- Counts how many times a unit begins between two times. The whole units between the beginnings of two units are
    their number. Weeks begin on Mondays. -#}
{% macro volary__datediff(first_date, second_date, datepart) -%}
  {%- set unit = datepart | lower -%}
  timestampdiff(
    {{ unit }},
    date_trunc('{{ unit }}', cast({{ first_date }} as timestamp)),
    date_trunc('{{ unit }}', cast({{ second_date }} as timestamp))
  )
{%- endmacro %}
