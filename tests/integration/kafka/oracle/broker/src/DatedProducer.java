import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces batches with timestamps of one's own, which no tool of Kafka's does for a partition.
 *
 * <p>java DatedProducer BOOTSTRAP RECORDS BYTES, of each batch and of each record,
 * then for every batch TOPIC PARTITION TIMESTAMP. A batch is acknowledged before the next is sent.
 */
public final class DatedProducer {
    public static void main(String[] args) throws Exception {
        int records = Integer.parseInt(args[1]);
        byte[] value = new byte[Integer.parseInt(args[2])];
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 2 * records * value.length);
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 60_000); // none goes before it is flushed
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            for (int at = 3; at < args.length; at += 3) {
                String topic = args[at];
                int partition = Integer.parseInt(args[at + 1]);
                long timestamp = Long.parseLong(args[at + 2]);
                for (int number = 1; number < records; number++) {
                    producer.send(record(topic, partition, timestamp, number, value));
                }
                var last = producer.send(record(topic, partition, timestamp, 0, value));
                producer.flush();
                last.get(); // throws what the batch, and so each of its records, failed of
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(
            String topic, int partition, long timestamp, int key, byte[] value) {
        return new ProducerRecord<>(topic, partition, timestamp, new byte[] {(byte) key}, value);
    }
}
