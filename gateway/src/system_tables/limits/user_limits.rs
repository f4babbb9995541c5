use std::collections::BTreeMap;

use volary_catalog::access::{Access, Rights, UserLimits};

use super::gateway_limits::{
    MAX_RUNNING_PER_USER, OPERATORS, QUERY_MEMORY, RUNNING, SPILLS, WAITS,
};
use super::limit::GatewayLimit;
use crate::config::Config;
use crate::statements::{Phase, Statements};

/// What the running statements of a user have in use. Only statements that have a place count.
#[derive(Debug, Default)]
struct UserUsage {
    running: u64,
    /// Memory of the statement that has the most, in bytes.
    largest_memory_bytes: u64,
}

/// Returns the limits of the user who asks, and of each user who has something in use or has limits
/// of its own. An administrator sees all of these users; other users see only themselves. As long
/// as there are no users, nothing is listed, because then each session counts as a user.
pub(super) fn limits_by_user(
    config: &Config,
    statements: &Statements,
    access: &Access,
    by: &Rights,
) -> Vec<GatewayLimit> {
    let Some(current_user) = by.owner() else {
        return Vec::new();
    };
    let mut users = BTreeMap::from([(current_user.to_owned(), UserUsage::default())]);
    for user in access.users() {
        if by.may_act_for(&user.name) && user.limits != UserLimits::default() {
            users.entry(user.name.clone()).or_default();
        }
    }
    let running = statements.all(by).into_iter();
    for status in running.filter(|status| status.phase == Phase::Running) {
        let in_use = users.entry(status.issuer.user).or_default();
        in_use.running += 1;
        in_use.largest_memory_bytes = in_use.largest_memory_bytes.max(status.memory_bytes);
    }
    let limits = users.into_iter().flat_map(|(name, in_use)| {
        let own = access.user(&name).map(|user| user.limits);
        limits_of_user(config, &name, own.unwrap_or_default(), &in_use)
    });
    limits.collect()
}

fn limits_of_user(
    config: &Config,
    name: &str,
    own: UserLimits,
    in_use: &UserUsage,
) -> [GatewayLimit; 2] {
    let of_all = config.query.max_running_per_user() as u64;
    let (places, set_by) = match own.max_queries {
        Some(own) if own < of_all => (own, "MAX_QUERIES"),
        _ => (of_all, MAX_RUNNING_PER_USER),
    };
    let of_all = config.query_memory_limit().bytes as u64;
    let (memory, memory_set_by) = match own.query_memory {
        Some(own) if own < of_all => (own, "QUERY_MEMORY"),
        _ => (of_all, QUERY_MEMORY),
    };
    [
        GatewayLimit::new("user", RUNNING, places, "statements", WAITS)
            .with_setting(set_by)
            .for_user(name, in_use.running),
        GatewayLimit::new("statement", OPERATORS, memory, "bytes", SPILLS)
            .with_setting(memory_set_by)
            .for_user(name, in_use.largest_memory_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::MemoryConsumer;
    use datafusion::execution::runtime_env::RuntimeEnv;
    use volary_flight_proto::ids::{QueryId, SessionId};

    use super::*;
    use crate::statements::{Issuer, ListedStatement};

    fn planned(statements: &Arc<Statements>, user: &str) -> ListedStatement {
        let issuer = Issuer {
            user: user.to_owned(),
            session: SessionId::new(),
            client: None,
            tag: None,
            trace: None,
        };
        statements.add(QueryId::new(), issuer, "SELECT 1")
    }

    #[test]
    fn a_user_is_told_of_what_its_own_statements_have_that_run() {
        let statements = Arc::new(Statements::new(1));
        let env = Arc::new(RuntimeEnv::default());
        let held = MemoryConsumer::new("Sort").register(&env.memory_pool);
        held.grow(7);
        let listed = ["kea", "kea", "kea", "auk"].map(|user| planned(&statements, user));
        for running in &listed[1..] {
            running.progress().set_running(&env);
        }
        let told = |by: &Rights| {
            let config = Config::default();
            let limits = limits_by_user(&config, &statements, &Access::default(), by);
            let of_users = limits.into_iter().filter_map(|limit| limit.user);
            let in_use = of_users.map(|user| (user.name, user.in_use));
            in_use.collect::<Vec<_>>()
        };
        let of = |user: &str, running, largest| {
            vec![(user.to_owned(), running), (user.to_owned(), largest)]
        };
        assert_eq!(told(&Rights::without_grants("kea", 1)), of("kea", 2, 7));
        assert_eq!(told(&Rights::without_grants("owl", 1)), of("owl", 0, 0));
        assert_eq!(told(&Rights::of_open_cluster("kea")), []);
    }

    #[test]
    fn the_lower_one_of_two_limits_is_listed_with_what_sets_it() {
        let config = Config::default();
        let of_kea = |max_queries, query_memory| {
            let own = UserLimits {
                max_queries,
                query_memory,
            };
            let limits = limits_of_user(&config, "kea", own, &UserUsage::default());
            limits.map(|limit| (limit.setting, limit.value))
        };
        let of_all = of_kea(None, None);
        assert_eq!(of_all[0], (Some(MAX_RUNNING_PER_USER), 192));
        assert_eq!(of_all[1].0, Some(QUERY_MEMORY));
        assert_eq!(of_kea(Some(u64::MAX), Some(u64::MAX)), of_all);
        let own = [(Some("MAX_QUERIES"), 3), (Some("QUERY_MEMORY"), 5)];
        assert_eq!(of_kea(Some(3), Some(5)), own);
    }
}
