{#- The rows are first written to a table beside, so that a file with a wrong value leaves the old rows as they were. -#}
{% materialization seed, adapter='volary' %}

  {%- set existing_relation = adapter.get_relation(database=database, schema=schema, identifier=model['alias']) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set staging_relation = volary__staging_relation(target_relation, 'table') -%}
  {%- set grant_config = config.get('grants') -%}
  {%- set agate_table = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=agate_table) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if existing_relation is not none and existing_relation.is_view %}
    {{ exceptions.raise_compiler_error("Cannot seed to '{}', it is a view".format(existing_relation.render())) }}
  {% endif %}

  {%- set rows_affected = agate_table.rows | length -%}
  {%- set create_sql = volary__create_seed_table(staging_relation, agate_table) -%}
  {%- set insert_sql = '' -%}
  {%- if rows_affected -%}
    {%- set columns = get_seed_column_quoted_csv(model, agate_table.column_names) -%}
    {%- set insert_sql = adapter.insert_rows(staging_relation, columns, agate_table) -%}
  {%- endif -%}
  {%- call statement('replace_table') -%}
    {{ volary__copy_table(target_relation, staging_relation) }}
  {%- endcall -%}
  {% do adapter.drop_relation(staging_relation) %}

  {%- set code = 'CREATE' if should_full_refresh() or existing_relation is none else 'INSERT' -%}
  {% call noop_statement('main', code ~ ' ' ~ rows_affected, code, rows_affected) %}
    {{ get_csv_sql(create_sql, insert_sql) }};
  {% endcall %}

  {% do apply_grants(target_relation, grant_config, should_revoke=should_revoke(existing_relation, true)) %}
  {% do persist_docs(target_relation, model) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}

{% endmaterialization %}


{% macro volary__create_seed_table(relation, agate_table) -%}
  {%- set types = model['config'].get('column_types', {}) -%}
  {%- set quote = model['config'].get('quote_columns') -%}
  {%- set sql -%}
    create or replace table {{ relation.render() }} (
      {%- for name in agate_table.column_names %}
      {{ adapter.quote_seed_column(name | string, quote) }} {{ types.get(name, adapter.convert_type(agate_table, loop.index0)) }}
      {%- if not loop.last %},{% endif %}
      {%- endfor %}
    ) {{ volary__options_of_model() }}
  {%- endset -%}
  {%- call statement('create_seed_table') -%}
    {{ sql }}
  {%- endcall -%}
  {{ return(sql) }}
{%- endmacro %}
