{#- The statements that create tables and views. CREATE OR REPLACE shows the old rows until the new ones are complete,
    so nothing has to be renamed. -#}

{% macro volary__create_table_as(temporary, relation, sql) -%}
  {#- What dbt calls a temporary table is one with a name of its own in the model's schema, where dbt looks for its
      columns. It is dropped after use. -#}
  {%- set contract = config.get('contract') -%}
  {%- if contract and contract.enforced and not temporary -%}
    {{ get_assert_columns_equivalent(sql) }}
    {%- set sql = get_select_subquery(sql) -%}
  {%- elif not temporary and config.get('materialized') in ('incremental', 'snapshot') -%}
    {%- set sql = volary__nullable(sql) -%}
  {%- endif -%}
  {{ config.get('sql_header') or '' }}
  create or replace table {{ relation.render() }} {{ '' if temporary else volary__options_of_model() }} as (
    {{ sql }}
  )
{%- endmacro %}


{#- CREATE TABLE AS makes a column NOT NULL if the query can have no NULL there. The rows of later runs may have one. The
    planner leaves the second part of the union out. -#}
{% macro volary__nullable(sql) -%}
  {%- set nulls = ['null'] * (get_columns_in_query(sql) | length) -%}
  select * from (
    {{ sql }}
  ) as dbt_rows
  union all
  select {{ nulls | join(', ') }} where false
{%- endmacro %}


{% macro volary__create_view_as(relation, sql) -%}
  {%- set contract = config.get('contract') -%}
  {%- if contract and contract.enforced -%}
    {{ get_assert_columns_equivalent(sql) }}
  {%- endif -%}
  {{ config.get('sql_header') or '' }}
  create or replace view {{ relation.render() }} as (
    {{ sql }}
  )
{%- endmacro %}


{% macro volary__get_replace_table_sql(relation, sql) -%}
  {{ volary__create_table_as(false, relation, sql) }}
{%- endmacro %}


{% macro volary__get_replace_view_sql(relation, sql) -%}
  {{ volary__create_view_as(relation, sql) }}
{%- endmacro %}


{#- Creates the model's table, or replaces it. If a statement fails, the old table or view stays as it was. -#}
{% macro volary__build_table(existing_relation, target_relation, sql) -%}
  {%- set contract = config.get('contract') -%}
  {%- set is_contracted = contract and contract.enforced -%}
  {%- set replaces_view = existing_relation is not none and existing_relation.is_view -%}
  {%- if not is_contracted and not replaces_view -%}
    {{ volary__run([], volary__create_table_as(false, target_relation, sql), []) }}
  {%- else -%}
    {#- CREATE TABLE AS takes no constraints, and a table does not replace a view. So the rows are first written to
        another table, which has the constraints and enforces them. -#}
    {%- set staging_relation = volary__staging_relation(target_relation, 'table') -%}
    {%- set first = [] -%}
    {%- if is_contracted -%}
      {{ get_assert_columns_equivalent(sql) }}
      {%- do first.append(volary__create_contracted_table(staging_relation)) -%}
      {%- set main = volary__insert_contracted(staging_relation, get_select_subquery(sql)) -%}
    {%- else -%}
      {%- set main = volary__create_table_as(false, staging_relation, sql) -%}
    {%- endif -%}
    {%- set last = [get_drop_sql(existing_relation)] if replaces_view else [] -%}
    {%- do last.append(volary__copy_table(target_relation, staging_relation)) -%}
    {%- if is_contracted -%}
      {%- do last.append(volary__add_constraints(target_relation)) -%}
    {%- endif -%}
    {{ volary__run(first, main, last) }}
    {% do adapter.drop_relation(staging_relation) %}
  {%- endif -%}
{%- endmacro %}


{#- Returns a relation that is dropped after use. Drops what a failed run has left under its name. -#}
{% macro volary__staging_relation(target_relation, type, suffix='__dbt_tmp') -%}
  {%- set staging_relation = make_intermediate_relation(target_relation, suffix).incorporate(type=type) -%}
  {% do drop_relation_if_exists(load_cached_relation(staging_relation)) %}
  {{ return(staging_relation) }}
{%- endmacro %}


{#- Runs statements one after another. dbt shows the rows of the main one, and keeps the text of all in target/run. -#}
{% macro volary__run(first, main, last) -%}
  {%- for sql in first if sql | trim -%}
    {%- call statement('before_main') -%}
      {{ sql }}
    {%- endcall -%}
  {%- endfor -%}
  {%- call statement('main') -%}
    {{ main }}
  {%- endcall -%}
  {%- for sql in last if sql | trim -%}
    {%- call statement('after_main') -%}
      {{ sql }}
    {%- endcall -%}
  {%- endfor -%}
  {%- if first or last -%}
    {{ write((first + [main] + last) | join(';\n')) }}
  {%- endif -%}
{%- endmacro %}


{% macro volary__create_contracted_table(relation) -%}
  create or replace table {{ relation.render() }}
  {{ get_table_columns_and_constraints() }}
  {{ volary__options_of_model() }}
{%- endmacro %}


{% macro volary__insert_contracted(relation, sql) -%}
  {{ config.get('sql_header') or '' }}
  insert into {{ relation.render() }} ({{ adapter.dispatch('get_column_names', 'dbt')() }})
  {{ sql }}
{%- endmacro %}


{% macro volary__copy_table(target_relation, source_relation) -%}
  create or replace table {{ target_relation.render() }} {{ volary__options_of_model() }} as (
    select * from {{ source_relation.render() }}
  )
{%- endmacro %}


{#- Adds the constraints of the contract to a table whose rows are known to obey them. -#}
{% macro volary__add_constraints(relation) -%}
  {%- set constraints = adapter.render_added_constraints(model['columns'], model['constraints']) -%}
  {%- if constraints -%}
    alter table {{ relation.render() }} add {{ constraints | join(', add ') }}
  {%- endif -%}
{%- endmacro %}
