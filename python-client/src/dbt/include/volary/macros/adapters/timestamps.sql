{% macro volary__current_timestamp() -%}
  now()
{%- endmacro %}


{#- Snapshots keep times without a time zone, in UTC, whatever the time zone of the session is. -#}
{% macro volary__snapshot_get_time() -%}
  cast(now() at time zone 'UTC' as timestamp)
{%- endmacro %}


{% macro volary__snapshot_string_as_time(timestamp) -%}
  {{ return("cast('" ~ timestamp ~ "' as timestamp)") }}
{%- endmacro %}


{% macro volary__current_timestamp_backcompat() -%}
  cast(now() at time zone 'UTC' as timestamp)
{%- endmacro %}
