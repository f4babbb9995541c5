{#- Only administrators see what others were granted. Other users grant what is configured, and revoke nothing. -#}
{% macro volary__get_show_grant_sql(relation) -%}
  select grantee, lower(privilege) as privilege_type
  from system.grants
  where object_kind = 'table'
    and schema_name = {{ string_literal(escape_single_quotes(relation.schema)) }}
    and object = {{ string_literal(escape_single_quotes(relation.identifier)) }}
{%- endmacro %}


{% macro volary__get_grant_sql(relation, privilege, grantees) -%}
  grant {{ privilege }} on {{ relation.render() }} to {{ volary__quoted(grantees) }}
{%- endmacro %}


{% macro volary__get_revoke_sql(relation, privilege, grantees) -%}
  revoke {{ privilege }} on {{ relation.render() }} from {{ volary__quoted(grantees) }}
{%- endmacro %}


{#- A statement is sent by itself. -#}
{% macro volary__call_dcl_statements(dcl_statement_list) -%}
  {%- for dcl_statement in dcl_statement_list -%}
    {%- call statement('grants') -%}
      {{ dcl_statement }}
    {%- endcall -%}
  {%- endfor -%}
{%- endmacro %}


{% macro volary__quoted(names) -%}
  {%- set quoted = [] -%}
  {%- for name in names -%}
    {%- do quoted.append(adapter.quote(name)) -%}
  {%- endfor -%}
  {{ return(quoted | join(', ')) }}
{%- endmacro %}
