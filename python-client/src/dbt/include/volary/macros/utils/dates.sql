{% macro volary__date(year, month, day) -%}
  date '{{ modules.datetime.date(year, month, day).isoformat() }}'
{%- endmacro %}


{#- A date plus days is a date, and a date plus hours is a timestamp. -#}
{% macro volary__dateadd(datepart, interval, from_date_or_timestamp) -%}
  {%- set unit = datepart | lower -%}
  {%- set step = '3 month' if unit == 'quarter' else '1 ' ~ unit -%}
  (({{ from_date_or_timestamp }}) + interval '{{ step }}' * cast(({{ interval }}) as bigint))
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
