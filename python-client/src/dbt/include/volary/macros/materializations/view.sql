{% materialization view, adapter='volary' %}

  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set grant_config = config.get('grants') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if existing_relation is not none and not existing_relation.is_view %}
    {#- A view does not replace a table. The table is dropped only if the view can be created. -#}
    {%- set tried_relation = volary__staging_relation(target_relation, 'view') -%}
    {%- call statement('try_view') -%}
      {{ volary__create_view_as(tried_relation, sql) }}
    {%- endcall -%}
    {% do adapter.drop_relation(tried_relation) %}
    {% do adapter.drop_relation(existing_relation) %}
  {% endif %}

  {% call statement('main') -%}
    {{ get_create_view_as_sql(target_relation, sql) }}
  {%- endcall %}

  {% do apply_grants(target_relation, grant_config, should_revoke=should_revoke(existing_relation, true)) %}
  {% do persist_docs(target_relation, model) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}

{% endmaterialization %}
