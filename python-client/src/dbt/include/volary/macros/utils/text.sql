{% macro volary__split_part(string_text, delimiter_text, part_number) -%}
  split_part({{ string_text }}, {{ delimiter_text }}, {{ part_number }})
{%- endmacro %}


{% macro volary__safe_cast(field, type) -%}
  try_cast({{ field }} as {{ type }})
{%- endmacro %}


{% macro volary__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- if limit_num -%}
    array_to_string(array_slice(array_agg({{ measure }} {{ order_by_clause or '' }}), 1, {{ limit_num }}), {{ delimiter_text }})
  {%- else -%}
    string_agg({{ measure }}, {{ delimiter_text }} {{ order_by_clause or '' }})
  {%- endif -%}
{%- endmacro %}
