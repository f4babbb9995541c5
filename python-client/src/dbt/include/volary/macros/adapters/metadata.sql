{% macro volary__list_schemas(database) -%}
  {%- call statement('list_schemas', fetch_result=True, auto_begin=False) -%}
    select schema_name from information_schema.schemata
  {%- endcall -%}
  {{ return(load_result('list_schemas').table) }}
{%- endmacro %}


{% macro volary__check_schema_exists(information_schema, schema) -%}
  {%- call statement('check_schema_exists', fetch_result=True, auto_begin=False) -%}
    select count(*) as n from information_schema.schemata
    where schema_name = {{ string_literal(escape_single_quotes(schema)) }}
  {%- endcall -%}
  {{ return(load_result('check_schema_exists').table) }}
{%- endmacro %}


{% macro volary__list_relations_without_caching(schema_relation) -%}
  {%- call statement('list_relations_without_caching', fetch_result=True, auto_begin=False) -%}
    select
      table_catalog as database_name,
      table_name as name,
      table_schema as schema_name,
      case table_type when 'VIEW' then 'view' else 'table' end as kind
    from information_schema.tables
    where table_schema = {{ string_literal(escape_single_quotes(schema_relation.schema)) }}
  {%- endcall -%}
  {{ return(load_result('list_relations_without_caching').table) }}
{%- endmacro %}


{% macro volary__get_columns_in_relation(relation) -%}
  {%- call statement('get_columns_in_relation', fetch_result=True, auto_begin=False) -%}
    select column_name, data_type
    from information_schema.columns
    where table_schema = {{ string_literal(escape_single_quotes(relation.schema)) }}
      and table_name = {{ string_literal(escape_single_quotes(relation.identifier)) }}
    order by ordinal_position
  {%- endcall -%}
  {{ return(sql_convert_columns_in_relation(load_result('get_columns_in_relation').table)) }}
{%- endmacro %}
