import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/**
 * Commits offsets as groups do, and runs Kafka's group tool while one group has a member.
 *
 * <p>java GroupMember BOOTSTRAP CLIENT_ID GROUP TOPIC, of the member that stays, then
 * for every offset GROUP TOPIC PARTITION OFFSET, then -- and what the tool is to be asked.
 */
public final class GroupMember {
    public static void main(String[] args) {
        int end = Arrays.asList(args).indexOf("--");
        for (int at = 4; at < end; at += 4) {
            try (var consumer = consumer(args[0], "once", args[at])) {
                commit(consumer, args[at + 1], args[at + 2], args[at + 3]);
            }
        }
        try (var consumer = consumer(args[0], args[1], args[2])) {
            consumer.subscribe(List.of(args[3]));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(100));
            }
            commit(consumer, args[3], "0", "1");
            ConsumerGroupCommand.main(Arrays.copyOfRange(args, end + 1, args.length));
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String server, String id, String group) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, server);
        settings.put(ConsumerConfig.CLIENT_ID_CONFIG, id);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        return new KafkaConsumer<>(settings, plain, plain);
    }

    private static void commit(
            KafkaConsumer<?, ?> consumer, String topic, String partition, String offset) {
        TopicPartition where = new TopicPartition(topic, Integer.parseInt(partition));
        consumer.commitSync(Map.of(where, new OffsetAndMetadata(Long.parseLong(offset))));
    }
}
