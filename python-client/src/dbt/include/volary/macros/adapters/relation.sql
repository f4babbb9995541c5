{% macro volary__get_drop_sql(relation) -%}
  drop {{ 'view' if relation.is_view else 'table' }} if exists {{ relation.render() }}
{%- endmacro %}


{#- There is no ALTER COLUMN … TYPE, but a table can be replaced by one with other types, in one step. -#}
{% macro volary__alter_column_type(relation, column_name, new_column_type) -%}
  {%- set selected = [] -%}
  {%- for column in adapter.get_columns_in_relation(relation) -%}
    {%- if column.name == column_name -%}
      {%- do selected.append('cast(' ~ column.quoted ~ ' as ' ~ new_column_type ~ ') as ' ~ column.quoted) -%}
    {%- else -%}
      {%- do selected.append(column.quoted) -%}
    {%- endif -%}
  {%- endfor -%}
  {% do volary__replace_with(relation, 'select ' ~ selected | join(', ') ~ ' from ' ~ relation.render()) %}
{%- endmacro %}


{#- There is no ADD COLUMN and no DROP COLUMN, but a table can be replaced by one with other columns, in one step. -#}
{% macro volary__alter_relation_add_remove_columns(relation, add_columns=none, remove_columns=none) -%}
  {%- set removed = (remove_columns or []) | map(attribute='name') | list -%}
  {%- set selected = [] -%}
  {%- for column in adapter.get_columns_in_relation(relation) if column.name not in removed -%}
    {%- do selected.append(column.quoted) -%}
  {%- endfor -%}
  {%- for column in add_columns or [] -%}
    {%- do selected.append('cast(null as ' ~ column.data_type ~ ') as ' ~ column.quoted) -%}
  {%- endfor -%}
  {% do volary__replace_with(relation, 'select ' ~ selected | join(', ') ~ ' from ' ~ relation.render()) %}
{%- endmacro %}


{#- The columns that a snapshot's query has got since the last snapshot. -#}
{% macro volary__create_columns(relation, columns) -%}
  {%- if columns -%}
    {% do volary__alter_relation_add_remove_columns(relation, columns) %}
  {%- endif -%}
{%- endmacro %}


{#- Replaces a table by the rows of a query, and keeps its shards. The caller adds constraints and comments again. -#}
{% macro volary__replace_with(relation, sql) -%}
  {%- call statement('replace_table') -%}
    create or replace table {{ relation.render() }} {{ volary__options_of(relation) }} as (
      {{ sql }}
    )
  {%- endcall -%}
{%- endmacro %}


{#- Returns the options of a table that exists. -#}
{% macro volary__options_of(relation) -%}
  {%- call statement('table_options', fetch_result=True, auto_begin=False) -%}
    select kind, shard_key, shards, sort_key
    from system.tables
    where schema_name = {{ string_literal(escape_single_quotes(relation.schema)) }}
      and name = {{ string_literal(escape_single_quotes(relation.identifier)) }}
  {%- endcall -%}
  {%- set rows = load_result('table_options')['data'] -%}
  {%- if not rows -%}
    {{ exceptions.raise_compiler_error('There is no table ' ~ relation.render()) }}
  {%- endif -%}
  {%- set kind, shard_key, shards, sort_key = rows[0] -%}
  {{ return(volary__with_options(shard_key, none if kind == 'reference' else shards, sort_key, kind == 'reference')) }}
{%- endmacro %}


{#- Returns the options of the model's table. -#}
{% macro volary__options_of_model() -%}
  {%- set sort_key = config.get('sort_key') -%}
  {%- if sort_key is not none and sort_key is not string -%}
    {%- set sort_key = sort_key | join(', ') -%}
  {%- endif -%}
  {{ return(volary__with_options(config.get('shard_key'), config.get('shards'), sort_key, config.get('reference'))) }}
{%- endmacro %}


{% macro volary__with_options(shard_key, shards, sort_key, reference) -%}
  {%- set options = [] -%}
  {%- if shard_key -%}
    {%- do options.append('shard_key = ' ~ string_literal(escape_single_quotes(shard_key))) -%}
  {%- endif -%}
  {%- if shards -%}
    {%- do options.append('shards = ' ~ shards) -%}
  {%- endif -%}
  {%- if sort_key -%}
    {%- do options.append('sort_key = ' ~ string_literal(escape_single_quotes(sort_key))) -%}
  {%- endif -%}
  {%- if reference -%}
    {%- do options.append('reference = true') -%}
  {%- endif -%}
  {{ return('with (' ~ options | join(', ') ~ ')' if options else '') }}
{%- endmacro %}
