{% materialization incremental, adapter='volary' %}

  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set grant_config = config.get('grants') -%}
  {%- set strategy = config.get('incremental_strategy') or 'default' -%}
  {%- set strategy_macro = adapter.get_incremental_strategy_macro(context, strategy) -%}
  {%- set is_full = existing_relation is none or existing_relation.is_view or should_full_refresh() -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if is_full %}
    {{ volary__build_table(existing_relation, target_relation, sql) }}
  {% else %}
    {{ volary__build_increment(existing_relation, target_relation, sql, strategy_macro) }}
  {% endif %}

  {% do apply_grants(target_relation, grant_config, should_revoke=should_revoke(existing_relation, is_full)) %}
  {% do persist_docs(target_relation, model) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}

{% endmaterialization %}


{#- Adds the new rows to the table, as the strategy says. -#}
{% macro volary__build_increment(existing_relation, target_relation, sql, strategy_macro) -%}
  {%- set contract = config.get('contract') -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}

  {#- Strategies that replace rows read the new rows more than once, so these are kept in a table. To append them, a
      view will do. -#}
  {%- set kind = 'view' if volary__only_appends() else 'table' -%}
  {%- set temp_relation = make_temp_relation(target_relation).incorporate(type=kind) -%}
  {{ drop_relation_if_exists(load_cached_relation(temp_relation)) }}
  {%- call statement('new_rows') -%}
    {%- if kind == 'view' -%}
      {{ config.get('sql_header') or '' }}
      create or replace view {{ temp_relation.render() }} as (
        {{ sql }}
      )
    {%- else -%}
      {{ volary__create_table_as(true, temp_relation, sql) }}
    {%- endif -%}
  {%- endcall -%}

  {%- if contract and contract.enforced -%}
    {{ get_assert_columns_equivalent(sql) }}
  {%- endif -%}
  {%- set dest_columns = process_schema_changes(on_schema_change, temp_relation, existing_relation) -%}
  {%- if contract and contract.enforced and on_schema_change != 'ignore' -%}
    {#- The table was replaced if its columns have changed. The new rows must pass its checks, too. -#}
    {{ volary__add_lost_constraints(target_relation) }}
  {%- endif -%}
  {%- if not dest_columns -%}
    {%- set dest_columns = adapter.get_columns_in_relation(existing_relation) -%}
  {%- endif -%}

  {%- set build_sql = strategy_macro({
    'target_relation': target_relation,
    'temp_relation': temp_relation,
    'unique_key': config.get('unique_key'),
    'dest_columns': dest_columns,
    'incremental_predicates': config.get('predicates') or config.get('incremental_predicates')
  }) -%}
  {{ volary__run([], build_sql, []) }}

  {%- if contract and contract.enforced -%}
    {{ volary__add_lost_constraints(target_relation) }}
    {% do adapter.drop_relation(volary__staging_relation(target_relation, 'table', '__dbt_new')) %}
  {%- endif -%}
  {% do adapter.drop_relation(temp_relation) %}
{%- endmacro %}


{% macro volary__only_appends() -%}
  {%- set strategy = config.get('incremental_strategy') or 'default' -%}
  {{ return(strategy == 'append' or (strategy == 'default' and not config.get('unique_key'))) }}
{%- endmacro %}


{#- A table that was replaced has no constraints any more. Its rows have passed them. -#}
{% macro volary__add_lost_constraints(relation) -%}
  {%- call statement('constraints', fetch_result=True, auto_begin=False) -%}
    select count(*) as n
    from information_schema.table_constraints
    where table_schema = {{ string_literal(escape_single_quotes(relation.schema)) }}
      and table_name = {{ string_literal(escape_single_quotes(relation.identifier)) }}
  {%- endcall -%}
  {%- if load_result('constraints')['data'][0][0] == 0 -%}
    {%- set sql = volary__add_constraints(relation) -%}
    {%- if sql | trim -%}
      {%- call statement('add_constraints') -%}
        {{ sql }}
      {%- endcall -%}
    {%- endif -%}
  {%- endif -%}
{%- endmacro %}
