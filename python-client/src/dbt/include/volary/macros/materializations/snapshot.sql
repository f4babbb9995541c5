{#- There is no MERGE and no UPDATE. If rows have ended, the snapshot is replaced, in one step, by all of its rows with
    the new ends and the new rows. Otherwise, new rows are just appended. -#}
{% macro volary__snapshot_merge_sql(target, source, insert_cols) -%}
  {%- set names = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set scd_id = names.dbt_scd_id -%}
  {%- set valid_to = names.dbt_valid_to -%}
  {%- set new_rows -%}
    from {{ source.render() }} as DBT_INTERNAL_SOURCE
      where dbt_change_type = 'insert'
      and not exists (
        select 1 from {{ target.render() }} as DBT_INTERNAL_DEST
        where DBT_INTERNAL_DEST.{{ scd_id }} = DBT_INTERNAL_SOURCE.{{ scd_id }}
      )
  {%- endset -%}

  {%- call statement('find_ended_rows', fetch_result=True, auto_begin=False) -%}
    select 1 as found from {{ source.render() }} where dbt_change_type in ('update', 'delete') limit 1
  {%- endcall -%}
  {%- if not load_result('find_ended_rows')['data'] -%}
    insert into {{ target.render() }} ({{ insert_cols | join(', ') }})
      select {{ insert_cols | join(', ') }}
      {{ new_rows }}
  {%- else -%}
    {%- set columns = adapter.get_columns_in_relation(target) -%}
    {%- set source_columns = adapter.get_columns_in_relation(source) -%}
    {%- set is_open -%}
      {%- if config.get('dbt_valid_to_current') -%}
        ({{ equals('DBT_INTERNAL_DEST.' ~ valid_to, config.get('dbt_valid_to_current') | trim) }}
          or DBT_INTERNAL_DEST.{{ valid_to }} is null)
      {%- else -%}
        DBT_INTERNAL_DEST.{{ valid_to }} is null
      {%- endif -%}
    {%- endset -%}
    create or replace table {{ target.render() }} {{ volary__options_of_model() }} as (
      select
      {%- for column in columns %}
        {%- if column.name | lower == valid_to | lower %}
        case when DBT_INTERNAL_ENDED.{{ scd_id }} is not null and {{ is_open }}
          then cast(DBT_INTERNAL_ENDED.{{ valid_to }} as {{ column.data_type }})
          else DBT_INTERNAL_DEST.{{ column.quoted }} end as {{ column.quoted }}
        {%- else %}
        DBT_INTERNAL_DEST.{{ column.quoted }}
        {%- endif %}
        {%- if not loop.last %},{% endif %}
      {%- endfor %}
      from {{ target.render() }} as DBT_INTERNAL_DEST
      left join (
        select {{ scd_id }}, max({{ valid_to }}) as {{ valid_to }}
        from {{ source.render() }}
        where dbt_change_type in ('update', 'delete')
        group by {{ scd_id }}
      ) as DBT_INTERNAL_ENDED on DBT_INTERNAL_ENDED.{{ scd_id }} = DBT_INTERNAL_DEST.{{ scd_id }}
      union all
      select {{ volary__as_columns(columns, source_columns) }}
      {{ new_rows }}
    )
  {%- endif -%}
{%- endmacro %}


{% macro volary__post_snapshot(staging_relation) -%}
  {% do adapter.drop_relation(staging_relation.incorporate(type='table')) %}
{%- endmacro %}
