package kip33.oracle.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Whether time retention wants a segment in tiered storage, for each of {@code cases}.
 *
 * <p>A case is {@code [now, retention.ms, the segment's largest timestamp]}. The answers are those of
 * {@code RLMExpirationTask.buildRetentionTimeData} and
 * {@code RemoteLogRetentionHandler.isSegmentBreachedByRetentionTime}, which Kafka keeps to itself:
 * hence reflection.
 */
public final class RemoteExpiry {
    static final TopicIdPartition PARTITION =
        new TopicIdPartition(Uuid.randomUuid(), new TopicPartition("oracle", 0));

    public Object answer(JsonNode request) throws Exception {
        FixedTime time = new FixedTime(0);
        List<Boolean> breached = new ArrayList<>();
        try (Metrics metrics = new Metrics();
                RemoteLogManager manager = manager(request.get("directory").asText(), time, metrics)) {
            Object task = inner(RemoteLogManager.class, "RLMExpirationTask", 2)
                .newInstance(manager, PARTITION);
            Method timeData = task.getClass().getDeclaredMethod("buildRetentionTimeData", long.class);
            timeData.setAccessible(true);
            Constructor<?> newHandler = inner(task.getClass(), "RemoteLogRetentionHandler", 3);
            Method isBreached = newHandler.getDeclaringClass().getDeclaredMethod(
                "isSegmentBreachedByRetentionTime", RemoteLogSegmentMetadata.class);
            isBreached.setAccessible(true);
            for (JsonNode one : request.get("cases")) {
                time.set(one.get(0).asLong());
                Object limit = timeData.invoke(task, one.get(1).asLong());
                Object handler = newHandler.newInstance(task, Optional.empty(), limit);
                breached.add((Boolean) isBreached.invoke(handler, segment(one.get(2).asLong())));
            }
        }
        return breached;
    }

    static RemoteLogManager manager(String directory, FixedTime time, Metrics metrics)
            throws Exception {
        AbstractConfig config = new AbstractConfig(RemoteLogManagerConfig.configDef(), Map.of(
            "remote.log.storage.system.enable", true,
            "remote.log.storage.manager.class.name", NoRemoteStorage.class.getName(),
            "remote.log.metadata.manager.listener.name", "NONE"));
        return new RemoteLogManager(
            new RemoteLogManagerConfig(config), 0, directory, "oracle", time,
            partition -> Optional.empty(), (partition, offset) -> { },
            new BrokerTopicStats(true), metrics, Optional.empty());
    }

    static Constructor<?> inner(Class<?> outer, String name, int parameters)
            throws ReflectiveOperationException {
        Class<?> found = Class.forName(outer.getName() + "$" + name);
        for (Constructor<?> constructor : found.getDeclaredConstructors()) {
            if (constructor.getParameterCount() == parameters) {
                constructor.setAccessible(true);
                return constructor;
            }
        }
        throw new NoSuchMethodException(found + " with " + parameters + " parameters");
    }

    private static RemoteLogSegmentMetadata segment(long largestTimestamp) {
        return new RemoteLogSegmentMetadata(
            new RemoteLogSegmentId(PARTITION, Uuid.randomUuid()),
            0, 9, largestTimestamp, 0, 0, 100, Map.of(0, 0L));
    }
}
