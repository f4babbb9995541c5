{% macro volary__get_incremental_default_sql(arg_dict) -%}
  {%- if arg_dict['unique_key'] -%}
    {{ return(volary__get_incremental_delete_insert_sql(arg_dict)) }}
  {%- endif -%}
  {{ return(get_incremental_append_sql(arg_dict)) }}
{%- endmacro %}


{% macro volary__get_incremental_append_sql(arg_dict) -%}
  {{ return(volary__insert_sql(arg_dict['target_relation'], arg_dict['temp_relation'], arg_dict['dest_columns'])) }}
{%- endmacro %}


{#- There is no DELETE. So the table is replaced, in one step, by its other rows and the new ones. If no row has to go,
    the new ones are just appended. -#}
{% macro volary__get_incremental_delete_insert_sql(arg_dict) -%}
  {%- set unique_key = arg_dict['unique_key'] -%}
  {%- if not unique_key -%}
    {{ exceptions.raise_compiler_error('The incremental strategy delete+insert needs a unique_key') }}
  {%- endif -%}
  {%- set keys = [unique_key] if unique_key is string else unique_key -%}
  {%- set equal = [] -%}
  {%- for key in keys -%}
    {%- do equal.append('DBT_INTERNAL_SOURCE.' ~ key ~ ' = DBT_INTERNAL_DEST.' ~ key) -%}
  {%- endfor -%}
  {%- set replaced -%}
    exists (
        select 1 from {{ arg_dict['temp_relation'].render() }} as DBT_INTERNAL_SOURCE
        where {{ equal | join(' and ') }}
      )
  {%- endset -%}
  {{ return(volary__replace_rows_sql(arg_dict, replaced, arg_dict['incremental_predicates'])) }}
{%- endmacro %}


{#- Replaces the rows of a period of time. -#}
{% macro volary__get_incremental_microbatch_sql(arg_dict) -%}
  {%- set start = model.config.get('__dbt_internal_microbatch_event_time_start') -%}
  {%- set end = model.config.get('__dbt_internal_microbatch_event_time_end') -%}
  {%- set event_time = model.config.event_time -%}
  {%- set conditions = [] -%}
  {%- if start -%}
    {%- do conditions.append('DBT_INTERNAL_DEST.' ~ event_time ~ " >= '" ~ start ~ "'") -%}
  {%- endif -%}
  {%- if end -%}
    {%- do conditions.append('DBT_INTERNAL_DEST.' ~ event_time ~ " < '" ~ end ~ "'") -%}
  {%- endif -%}
  {%- set replaced = '(' ~ (conditions or ['true']) | join(' and ') ~ ')' -%}
  {{ return(volary__replace_rows_sql(arg_dict, replaced, arg_dict['incremental_predicates'])) }}
{%- endmacro %}


{#- Returns the statement that puts the new rows in place of those for which `replaced` and all predicates are true. -#}
{% macro volary__replace_rows_sql(arg_dict, replaced, predicates) -%}
  {%- set target = arg_dict['target_relation'] -%}
  {%- set source = arg_dict['temp_relation'] -%}
  {%- set conditions = [replaced] -%}
  {%- if predicates -%}
    {%- do conditions.extend([predicates] if predicates is string else predicates) -%}
  {%- endif -%}

  {%- call statement('find_replaced_rows', fetch_result=True, auto_begin=False) -%}
    select 1 as found from {{ target.render() }} as DBT_INTERNAL_DEST
    where {{ conditions | join(' and ') }}
    limit 1
  {%- endcall -%}
  {%- if not load_result('find_replaced_rows')['data'] -%}
    {{ return(volary__insert_sql(target, source, arg_dict['dest_columns'])) }}
  {%- endif -%}

  {%- set columns = adapter.get_columns_in_relation(target) -%}
  {%- set names = [] -%}
  {%- for column in columns -%}
    {%- do names.append(column.quoted) -%}
  {%- endfor -%}
  {%- set sql -%}
      select {{ names | join(', ') }}
      from {{ target.render() }} as DBT_INTERNAL_DEST
      where
      {%- if conditions | length == 1 %} not {{ replaced }}
      {%- else %} not coalesce({{ conditions | join(' and ') }}, false)
      {%- endif %}
      union all
      select {{ volary__as_columns(columns, arg_dict['dest_columns']) }}
      from {{ source.render() }}
  {%- endset -%}
  {{ return(volary__rebuild_sql(target, sql)) }}
{%- endmacro %}


{#- Returns the statement that replaces a table by the rows of a query over it. With a contract, the rows are first
    written to a table with its constraints, which enforces them. -#}
{% macro volary__rebuild_sql(relation, sql) -%}
  {%- set contract = config.get('contract') -%}
  {%- if contract and contract.enforced -%}
    {%- set staging_relation = volary__staging_relation(relation, 'table', '__dbt_new') -%}
    {%- call statement('create_staging_table') -%}
      {{ volary__create_contracted_table(staging_relation) }}
    {%- endcall -%}
    {%- call statement('write_staging_table') -%}
      {{ volary__insert_contracted(staging_relation, get_select_subquery(sql)) }}
    {%- endcall -%}
    {{ return(volary__copy_table(relation, staging_relation)) }}
  {%- endif -%}
  {%- set statement_sql -%}
    create or replace table {{ relation.render() }} {{ volary__options_of_model() }} as (
      {{ sql }}
    )
  {%- endset -%}
  {{ return(statement_sql) }}
{%- endmacro %}


{% macro volary__insert_sql(target, source, dest_columns) -%}
  {%- set names = [] -%}
  {%- for column in dest_columns -%}
    {%- do names.append(column.quoted) -%}
  {%- endfor -%}
  {%- set sql -%}
    insert into {{ target.render() }} ({{ names | join(', ') }})
    select {{ names | join(', ') }} from {{ source.render() }}
  {%- endset -%}
  {{ return(sql) }}
{%- endmacro %}


{#- Returns the values for all columns of a table: columns that the source does not have are NULL. -#}
{% macro volary__as_columns(columns, source_columns) -%}
  {%- set there = source_columns | map(attribute='name') | list -%}
  {%- set values = [] -%}
  {%- for column in columns -%}
    {%- set value = column.quoted if column.name in there else 'null' -%}
    {%- if column.can_be_cast_to -%}
      {%- set value = 'cast(' ~ value ~ ' as ' ~ column.data_type ~ ')' -%}
    {%- endif -%}
    {%- do values.append(value ~ ' as ' ~ column.quoted) -%}
  {%- endfor -%}
  {{ return(values | join(', ')) }}
{%- endmacro %}
