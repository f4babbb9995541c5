{#- Tables, their columns and views have comments. The columns of views have none, so their descriptions are only in dbt's
    documentation. -#}
{% macro volary__persist_docs(relation, model, for_relation, for_columns) -%}
  {%- if for_relation and config.persist_relation_docs() and model.description -%}
    {%- call statement('comment_on_relation') -%}
      {{ volary__alter_relation_comment(relation, model.description) }}
    {%- endcall -%}
  {%- endif -%}
  {%- if for_columns and config.persist_column_docs() and model.columns -%}
    {%- if relation.is_view -%}
      {% do log('Volary has no comments on columns of views: those of ' ~ relation ~ ' are not persisted') %}
    {%- else -%}
      {%- set existing = adapter.get_columns_in_relation(relation) | map(attribute='name') | list -%}
      {%- set documented = validate_doc_columns(relation, model.columns, existing) -%}
      {% do volary__comment_on_columns(relation, documented, existing) %}
    {%- endif -%}
  {%- endif -%}
{%- endmacro %}


{% macro volary__alter_relation_comment(relation, relation_comment) -%}
  comment on {{ 'view' if relation.is_view else 'table' }} {{ relation.render() }} is {{ string_literal(escape_single_quotes(relation_comment)) }}
{%- endmacro %}


{#- A statement is sent by itself, so there is one for each column. -#}
{% macro volary__comment_on_columns(relation, columns, existing) -%}
  {%- for name, column in columns.items() if column['description'] -%}
    {#- A name may be written in another case than that of the column, unless another column has it as it is written. -#}
    {%- set found = [name] if name in existing else [] -%}
    {%- for candidate in existing if candidate | lower == name | lower -%}
      {%- do found.append(candidate) -%}
    {%- endfor -%}
    {%- call statement('comment_on_column') -%}
      comment on column {{ relation.render() }}.{{ adapter.quote(found[0]) }}
      is {{ string_literal(escape_single_quotes(column['description'])) }}
    {%- endcall -%}
  {%- endfor -%}
{%- endmacro %}
