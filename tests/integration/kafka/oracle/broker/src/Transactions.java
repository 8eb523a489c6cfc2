import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs steps of producers with and without transactions, then prints what consumers read.
 *
 * <p>java Transactions BOOTSTRAP TOPIC PARTITIONS STEPS. Each line of the file STEPS
 * is one of: send PRODUCER PARTITION NAME BYTES COUNT; commit PRODUCER; abort PRODUCER. Producer 0
 * writes outside of transactions. A transaction begins with the first send. What is open at the end
 * stays open. A value begins with NAME and a blank. Output: ISOLATION PARTITION OFFSET NAME.
 */
public final class Transactions {
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static final Map<String, Boolean> OPEN = new HashMap<>();

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[3]))) {
            String[] step = line.split(" ");
            KafkaProducer<byte[], byte[]> producer = producer(args[0], step[1]);
            switch (step[0]) {
                case "send" -> send(producer, args[1], step);
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> throw new IllegalArgumentException(line);
            }
            OPEN.put(step[1], step[0].equals("send"));
        }
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            for (int partition = 0; partition < Integer.parseInt(args[2]); partition++) {
                consume(args[0], isolation, new TopicPartition(args[1], partition));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // closing a producer would abort its transaction
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, String[] step)
            throws Exception {
        if (!step[1].equals("0") && !OPEN.getOrDefault(step[1], false)) {
            producer.beginTransaction();
        }
        byte[] name = (step[3] + " ").getBytes(StandardCharsets.UTF_8);
        byte[] value = Arrays.copyOf(name, Integer.parseInt(step[4]));
        Future<RecordMetadata> last = null;
        for (int number = 0; number < Integer.parseInt(step[5]); number++) {
            last = producer.send(
                    new ProducerRecord<>(topic, Integer.parseInt(step[2]), null, value));
        }
        producer.flush();
        last.get(); // throws what the batch failed of
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String name) {
        return PRODUCERS.computeIfAbsent(name, key -> {
            Properties settings = new Properties();
            settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 1 << 19);
            settings.put(ProducerConfig.LINGER_MS_CONFIG, 60_000); // none goes before a flush
            settings.put(ProducerConfig.BUFFER_MEMORY_CONFIG, 1 << 23);
            if (!key.equals("0")) {
                settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "transactions-" + key);
                settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 900_000); // the most
            }
            ByteArraySerializer plain = new ByteArraySerializer();
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain);
            if (!key.equals("0")) {
                producer.initTransactions();
            }
            return producer;
        });
    }

    private static void consume(String bootstrap, String isolation, TopicPartition partition) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation);
        settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 1 << 20);
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, plain, plain)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    String value = new String(record.value(), StandardCharsets.UTF_8);
                    System.out.println(isolation + " " + partition.partition() + " "
                            + record.offset() + " " + value.substring(0, value.indexOf(' ')));
                }
            }
        }
    }
}
